"""The experiments, one config file each; installed, they are in the package, found by name."""
