"""Settings that let XLA use all cores of a CPU; they must precede any computation."""

import ctypes
import os
import pathlib
import platform
import sys
from collections.abc import Sequence

import jax

# Fewer images than this on a device leave it too little to multiply at a time.
_SHARE = 25
# Names of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_HUGE_PAGES = 'glibc.malloc.hugetlb'


def use_cores(batch_sizes: Sequence[int], cores: int | None = None) -> int:
  """Makes every core a device of its own, as far as batches divide evenly among them.

  XLA shares the large operations of a device among threads, and works through
  the many small ones of a time-step on one. With a device for each core all of
  them run side by side. What the user says by JAX_NUM_CPU_DEVICES or XLA_FLAGS
  stands. GPUs and TPUs are not touched.

  Args:
    batch_sizes: every size of a batch that is to be divided.
    cores: None takes those that this process may use.

  Returns:
    The number of devices asked for; 1 where nothing was changed.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  told = jax.config.jax_num_cpu_devices >= 0 or 'xla_force_host_platform_device_count' in flags
  if cores is None:
    own = hasattr(os, 'sched_getaffinity')
    cores = len(os.sched_getaffinity(0)) if own else os.cpu_count() or 1
  most = min(cores, min(batch_sizes) // _SHARE)
  num = max((n for n in range(2, most + 1) if not any(b % n for b in batch_sizes)), default=1)
  if told or num == 1:
    return 1
  jax.config.update('jax_num_cpu_devices', num)
  if num == cores and 'xla_cpu_multi_thread_eigen' not in flags:
    # Threads of one device would only push aside those of another.
    os.environ['XLA_FLAGS'] = f'{flags} --xla_cpu_multi_thread_eigen=false'.strip()
  return num


def use_one_thread() -> None:
  """Lets no result depend on the number of cores: sums are cut in another way for each thread."""
  flags = os.environ.get('XLA_FLAGS', '')
  if 'xla_cpu_multi_thread_eigen' not in flags:
    os.environ['XLA_FLAGS'] = f'{flags} --xla_cpu_multi_thread_eigen=false'.strip()


def keep_memory() -> None:
  """Keeps the memory of one training step for the next, where malloc is glibc's.

  A step needs hundreds of megabytes for a moment. Given back to the system and
  taken again at each step, they are cleared page by page every time.
  """
  mallopt = getattr(ctypes.CDLL(None), 'mallopt', None) if os.name == 'posix' else None
  if mallopt:
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    # The threshold cannot be higher, and a step has larger arrays. Without it `svhn` is slower.
    mallopt(_M_MMAP_THRESHOLD, 2**25)
    mallopt(_M_MMAP_MAX, 0)


def use_huge_pages(offered: bool | None = None) -> None:
  """Starts this program anew with huge pages for its memory, where glibc's malloc has them.

  A step's memory is then not cleared, and not looked up, in pages of 4 KiB. glibc reads the
  setting when a process begins. What the user says by GLIBC_TUNABLES=glibc.malloc.hugetlb=0
  (or another value) stands.

  Args:
    offered: whether kernel and glibc have them; None looks.
  """
  given = os.environ.get('GLIBC_TUNABLES', '')
  if _HUGE_PAGES in given or not (_offers_huge_pages() if offered is None else offered):
    return
  os.environ['GLIBC_TUNABLES'] = f'{given}:{_HUGE_PAGES}=1'.lstrip(':')
  sys.stdout.flush()
  sys.stderr.flush()
  os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _offers_huge_pages() -> bool:
  """Whether the kernel gives huge pages to those who ask, and glibc (2.35 and newer) asks."""
  name, version = platform.libc_ver()
  enabled = pathlib.Path('/sys/kernel/mm/transparent_hugepage/enabled')
  return (
    name == 'glibc'
    and tuple(map(int, version.split('.')[:2])) >= (2, 35)
    and enabled.exists()
    and '[madvise]' in enabled.read_text()
  )
