"""Devices: the mesh of all of them, how arrays lie on it, start-up of several processes."""

import collections
import contextlib
import importlib.util
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from draw_jax.errors import UserError

AXIS = 'data'
# Batches held on the devices ahead of the one in use.
_AHEAD = 2


def start_processes(
  coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> None:
  """Joins this process to the others of the run; must precede any computation.

  With all three arguments it joins as told. With none it does so under SLURM,
  Open MPI, Kubernetes and Cloud TPU, and elsewhere does nothing.

  Args:
    coordinator: host:port of process 0.
    num_processes: how many processes there are.
    process_id: which one this is, from 0.
  """
  given = (coordinator, num_processes, process_id)
  if None not in given:
    if not 0 <= process_id < num_processes:
      raise UserError(f'--process_id={process_id} is not between 0 and {num_processes - 1}.')
    host, _, port = coordinator.rpartition(':')
    if not host or not port.isdecimal():
      raise UserError(f'--coordinator_address={coordinator} is not host:port.')
    # JAX would still ask a scheduler for the devices, and take one of them a process.
    jax.distributed.initialize(
      coordinator, num_processes, process_id, cluster_detection_method='deactivate'
    )
  elif any(value is not None for value in given):
    raise UserError(
      'give --coordinator_address, --num_processes and --process_id together, or none of them.'
    )
  elif _scheduled(os.environ):
    jax.distributed.initialize()
  elif importlib.util.find_spec('libtpu'):
    # The library may be there on a machine that belongs to no TPU slice.
    with contextlib.suppress(ValueError):
      jax.distributed.initialize()


def _scheduled(environ: Mapping[str, str]) -> bool:
  """Whether a scheduler that JAX knows has started several processes.

  One process needs no coordination, and under `sbatch` without `srun` the
  others that SLURM announces would be waited for in vain.
  """
  return (
    ('SLURM_STEP_NODELIST' in environ and int(environ.get('SLURM_NTASKS', 1)) > 1)
    or int(environ.get('OMPI_COMM_WORLD_SIZE', 1)) > 1
    or ('KUBERNETES_SERVICE_HOST' in environ and 'JOB_COMPLETION_INDEX' in environ)
  )


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
