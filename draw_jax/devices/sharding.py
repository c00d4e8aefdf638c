"""Devices: the mesh of all of them, and how arrays lie on it."""

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXIS = 'data'
# Batches held on the devices ahead of the one in use.
_AHEAD = 2


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
  """Devices in one row: those given, or all of all processes."""
  devices = jax.devices() if devices is None else devices
  return jax.make_mesh((len(devices),), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)


def replicated(mesh: Mesh) -> NamedSharding:
  """The same array on every device."""
  return NamedSharding(mesh, PartitionSpec())


def by_batch(mesh: Mesh, axis: int = 0) -> NamedSharding:
  """An array whose given axis is the batch, in equal parts."""
  return NamedSharding(mesh, PartitionSpec(*[None] * axis, AXIS))


def put(mesh: Mesh, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
  """Global arrays from the part of a batch that this process has loaded."""
  sharding = by_batch(mesh)
  return {k: jax.make_array_from_process_local_data(sharding, v) for k, v in batch.items()}


def prefetch(mesh: Mesh, batches: Iterable[Mapping[str, np.ndarray]]) -> Iterator:
  """The batches on the devices, their transfers started ahead of use."""
  placed = (put(mesh, batch) for batch in batches)
  queue = collections.deque(itertools.islice(placed, _AHEAD))
  while queue:
    yield queue.popleft()
    queue.extend(itertools.islice(placed, 1))
