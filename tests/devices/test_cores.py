import subprocess
import sys

import pytest

PROGRAM = """
import os
import jax
from draw_jax.devices import cores
cores.keep_memory()
num = cores.use_cores({sizes}, cores={cores})
print(num, jax.device_count(), os.environ.get('XLA_FLAGS', ''))
"""


def devices(sizes, cores, **environment):
  # In a process of its own: the number of devices is settled by the first computation.
  result = subprocess.run(
    [sys.executable, '-c', PROGRAM.format(sizes=sizes, cores=cores)],
    env={'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': ':'.join(sys.path), **environment},
    capture_output=True,
    text=True,
    check=True,
  )
  num, found, *flags = result.stdout.split()
  assert num == found or environment
  return int(found), flags


@pytest.mark.parametrize(
  ('sizes', 'cores', 'expected'),
  [
    ([100, 200], 2, 2),  # one for each core
    ([100, 200], 8, 4),  # 5 divide both, but leave one 20 images
    ([99, 200], 2, 1),  # no even share
    ([16, 200], 2, 1),  # too small to be divided
  ],
)
def test_devices(sizes, cores, expected):
  found, flags = devices(sizes, cores)
  assert found == expected
  assert flags == (['--xla_cpu_multi_thread_eigen=false'] if expected == cores else [])


def test_what_the_user_says_stands():
  flag = '--xla_force_host_platform_device_count=3'
  assert devices([100], 2, JAX_NUM_CPU_DEVICES='1') == (1, [])
  assert devices([100], 2, XLA_FLAGS=flag) == (3, [flag])


def begun_anew(**environment):
  """The arguments and GLIBC_TUNABLES with which a program goes on after `use_huge_pages`."""
  program = (
    'import os, sys\n'
    'from draw_jax.devices import cores\n'
    'print("begun", flush=True)\n'
    'cores.use_huge_pages(offered=True)\n'
    'print(sys.argv[1:], os.environ["GLIBC_TUNABLES"])\n'
  )
  result = subprocess.run(
    [sys.executable, '-c', program, 'a b', '--c=d'],
    env={'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': ':'.join(sys.path), **environment},
    capture_output=True,
    text=True,
    check=True,
  )
  return result.stdout.splitlines()


def test_huge_pages_by_starting_anew_once():
  end = "['a b', '--c=d'] glibc.malloc.hugetlb=1"
  assert begun_anew() == ['begun', 'begun', end]


def test_other_tunables_stay():
  end = "['a b', '--c=d'] glibc.malloc.tcache_count=9:glibc.malloc.hugetlb=1"
  assert begun_anew(GLIBC_TUNABLES='glibc.malloc.tcache_count=9') == ['begun', 'begun', end]


def test_huge_pages_can_be_switched_off():
  end = "['a b', '--c=d'] glibc.malloc.hugetlb=0"
  assert begun_anew(GLIBC_TUNABLES='glibc.malloc.hugetlb=0') == ['begun', end]
