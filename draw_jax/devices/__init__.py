"""Devices: the cores of a CPU, the mesh of all devices, and several processes."""
