"""Several processes of one run: how they join, agree on what they do, and end together."""

import atexit
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import ipaddress
import json
import os
import pathlib
import platform
import secrets
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from draw_jax.devices import sharding
from draw_jax.devices.lifeline import Lifeline
from draw_jax.errors import UserError, first_line

# Seconds without a sign of life after which JAX ends the others; for a machine that is gone, since
# the lifeline notices at once a process that is.
_HEARTBEAT = 15
# Seconds to wait for the others when started by flags, as a launcher starts all at once.
_JOIN_SECONDS = 20
# What compiles, computes and saves.
_PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'orbax-checkpoint')
_KEY_BYTES, _ADDRESS_BYTES = 32, 256
# Fields named in a message, values or processes listed of each, and characters of a value.
_NAMED, _LISTED, _SHOWN = 5, 4, 40

_lifeline: Lifeline | None = None
_told_number: int | None = None  # of processes, by a flag: JAX takes that of process 0


def join(
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
  seconds: int | None = None,
  told: UserError | None = None,
) -> None:
  """Joins this process to the others of the run; must precede any computation.

  With the first three arguments it joins as told. With none it does so under SLURM,
  Open MPI, Kubernetes and Cloud TPU, and elsewhere does nothing.

  Args:
    coordinator: host:port of process 0.
    num_processes: how many processes there are.
    process_id: which one this is, from 0.
    seconds: how long to wait for the others; None takes 20, and under a scheduler JAX's own 300.
    told: an error that was printed here, which the others are to end with: then this exits.
  """
  global _told_number
  given = (coordinator, num_processes, process_id)
  if None not in given:
    if not 0 <= process_id < num_processes:
      raise UserError(f'--process_id={process_id} is not between 0 and {num_processes - 1}.')
    host, _, port = coordinator.rpartition(':')
    if not host or not port.isdecimal():
      raise UserError(f'--coordinator_address={coordinator} is not host:port.')
    own = _is_own_number(host)
    if own and process_id == 0:
      _check_free(host, int(port), coordinator)
    # JAX would listen on all interfaces, and would still ask a scheduler for the devices, and take
    # one of them a process.
    bind = {'coordinator_bind_address': coordinator} if own else {}
    _told_number = num_processes
    _initialize(
      seconds or _JOIN_SECONDS,
      coordinator_address=coordinator,
      num_processes=num_processes,
      process_id=process_id,
      cluster_detection_method='deactivate',
      **({} if 'JAX_COORDINATOR_BIND_ADDRESS' in os.environ else bind),
    )
  elif any(value is not None for value in given):
    raise UserError(
      'give --coordinator_address, --num_processes and --process_id together, or none of them.'
    )
  elif scheduled(os.environ):
    _initialize(seconds)
  elif importlib.util.find_spec('libtpu'):
    # The library may be there on a machine that belongs to no TPU slice.
    with contextlib.suppress(ValueError):
      _initialize(seconds)
  if jax.distributed.is_initialized() and jax.process_count() > 1:
    address = coordinator or os.environ.get('JAX_COORDINATOR_ADDRESS')
    _tie(address or f'{socket.gethostname()}:0', quiet=told is not None)
    if told is not None:
      _lifeline.end('', 2, str(told))


def agree(about: Mapping[str, Any]) -> None:
  """Raises a `UserError` on every process unless all come with the same values.

  Versions, code and devices are compared as well. All processes must call it at the same point.

  Args:
    about: values by name, for JSON.
  """
  if jax.process_count() == 1:
    return
  record = json.dumps({**about, **_surroundings()}, sort_keys=True, default=str).encode()
  head = hashlib.sha256(record).digest() + len(record).to_bytes(8, 'big')
  heads = _gather(head, len(head))
  if len(set(heads)) == 1:
    return
  longest = max(int.from_bytes(head[-8:], 'big') for head in heads)
  # JSON does not end in blanks.
  records = [json.loads(row) for row in _gather(record.ljust(longest), longest)]
  raise UserError(_disagreement(records))


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
  """Ends all processes of a run when this one fails in the block.

  Elsewhere an exception would first pass through code that waits for the others.
  """
  try:
    yield
  except (Exception, KeyboardInterrupt) as error:
    fail(error)
    raise


def fail(error: BaseException) -> None:
  """Prints an error, tells it to the other processes and exits; returns if there are none."""
  if _lifeline is None:
    return
  if isinstance(error, UserError):
    _lifeline.end(f'error: {error}', 2, str(error))
  if isinstance(error, KeyboardInterrupt):
    _lifeline.end('stopped.', 128 + signal.SIGINT, 'it was stopped by Ctrl-C')
  # When another process is gone, what fails here is a message to or from it.
  _lifeline.hear()
  _lifeline.end(''.join(traceback.format_exception(error)).rstrip(), 1, first_line(error))


def _initialize(seconds: int | None, **options) -> None:
  """Joins, and ends with one line where JAX would abort."""
  seconds = seconds or 300

  def give_up():
    print(
      f'error: the other processes did not join within {seconds} s: see what they said, or give '
      '--join_seconds.',
      file=sys.stderr,
      flush=True,
    )
    os._exit(1)

  # JAX's own limit, should this one not come to pass.
  timer = threading.Timer(seconds, give_up)
  timer.daemon = True
  timer.start()
  try:
    jax.distributed.initialize(
      initialization_timeout=seconds + 5, heartbeat_timeout_seconds=_HEARTBEAT, **options
    )
  finally:
    timer.cancel()


def _tie(coordinator: str, quiet: bool) -> None:
  """Connects all processes, by an address and a secret that process 0 makes up."""
  global _lifeline
  host = coordinator.rpartition(':')[0].strip('[]')
  if jax.process_index() == 0:
    key = secrets.token_bytes(_KEY_BYTES)
    bind = host if _is_own_number(host) else ''
    line, port = Lifeline.listen(bind, jax.process_count(), key, quiet)
    row = key + f'{host} {port}'.encode()
  else:
    row = b''
  row = _gather(row.ljust(_ADDRESS_BYTES), _ADDRESS_BYTES)[0]
  if jax.process_index():
    host, port = row[_KEY_BYTES:].decode().split()
    line = Lifeline.connect(host, int(port), row[:_KEY_BYTES], jax.process_index(), quiet)
  _lifeline = line
  atexit.register(line.leave)


def _is_own_number(host: str) -> bool:
  """Whether a host is given as a number of this machine, to listen on that alone."""
  host = host.strip('[]')
  try:
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    with socket.socket(family) as probe:
      probe.bind((host, 0))
  except (ValueError, OSError):
    return host == 'localhost'
  return True


def _check_free(host: str, port: int, given: str) -> None:
  """Refuses an address that has a listener: JAX would share it, and abort one of the two."""
  family = socket.AF_INET6 if ':' in host else socket.AF_INET
  try:
    socket.create_server((host.strip('[]'), port), family=family).close()
  except OverflowError as error:
    raise UserError(f'--coordinator_address={given}: ports end at 65535.') from error
  except OSError as error:
    raise UserError(
      f'cannot listen at --coordinator_address={given} ({error.strerror}): start one process with '
      '--process_id=0, and give a port that is free.'
    ) from error


def _gather(row: bytes, length: int) -> list[bytes]:
  """The rows of all processes, in order, each of the same length.

  Unlike those of JAX, this works where processes have different numbers of devices.
  """
  mesh = sharding.make_mesh()
  numbers = np.frombuffer(row, np.uint8)[None]
  rows = jax.make_array_from_callback(
    (mesh.size, length), sharding.by_batch(mesh), lambda _: numbers
  )
  everywhere = jax.jit(lambda x: x, out_shardings=sharding.replicated(mesh))(rows)
  table = np.asarray(everywhere.addressable_data(0))
  owners = [device.process_index for device in mesh.devices.flat]
  return [table[owners.index(process)].tobytes() for process in range(jax.process_count())]


def _surroundings() -> dict[str, Any]:
  """What must be the same for processes to compute the same, besides what they are told."""
  devices = jax.local_devices()
  return {
    'devices': f'{len(devices)} x {devices[0].device_kind}',
    'num_processes': _told_number,
    'code of draw_jax': _code(),
    'version of python': platform.python_version(),
    **{f'version of {name}': importlib.metadata.version(name) for name in _PACKAGES},
    'XLA_FLAGS': os.environ.get('XLA_FLAGS', ''),
    'jax_enable_x64': jax.config.jax_enable_x64,
  }


def _code() -> str:
  """The beginning of a hash of this package's code."""
  package = pathlib.Path(__file__).parents[1]
  found = hashlib.sha256()
  for path in sorted(package.rglob('*.py')):
    found.update(path.relative_to(package).as_posix().encode() + b'\0' + path.read_bytes())
  return found.hexdigest()[:12]


def _disagreement(records: list[dict[str, Any]]) -> str:
  """Which values differ, and on which processes, in one line."""
  names = sorted({name for record in records for name in record})
  told = []
  for name in names:
    holders: dict[str, list[int]] = {}
    for process, record in enumerate(records):
      shown = json.dumps(record[name]) if name in record else 'nothing'
      holders.setdefault(shown, []).append(process)
    if len(holders) > 1:
      told.append(f'{name}: {_some([f"{_short(v)} on {_who(p)}" for v, p in holders.items()])}')
  more = f'; and {len(told) - _NAMED} more' if len(told) > _NAMED else ''
  return (
    f'the processes of this run differ ({"; ".join(told[:_NAMED])}{more}): start all of them with '
    'the same command, code and data.'
  )


def _short(value: str) -> str:
  return value if len(value) <= _SHOWN else value[: _SHOWN - 3] + '...'


def _who(processes: list[int]) -> str:
  return f'process{"es" * (len(processes) > 1)} {_some(processes)}'


def _some(values: list) -> str:
  return ', '.join(map(str, values[:_LISTED])) + ', ...' * (len(values) > _LISTED)


def scheduled(environ: Mapping[str, str]) -> bool:
  """Whether a scheduler that JAX knows has started several processes.

  One process needs no coordination, and under `sbatch` without `srun` the
  others that SLURM announces would be waited for in vain.
  """
  return (
    ('SLURM_STEP_NODELIST' in environ and int(environ.get('SLURM_NTASKS', 1)) > 1)
    or int(environ.get('OMPI_COMM_WORLD_SIZE', 1)) > 1
    or ('KUBERNETES_SERVICE_HOST' in environ and 'JOB_COMPLETION_INDEX' in environ)
  )
