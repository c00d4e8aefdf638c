"""Lossless compression with a trained network, by bits-back coding."""
