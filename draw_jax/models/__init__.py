"""The networks as Flax modules, and the layers and scans that they are made of."""
