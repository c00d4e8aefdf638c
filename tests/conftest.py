"""Shapes are checked at run time in every test."""

import signal

import jax
import jax.experimental
from jaxtyping import install_import_hook

install_import_hook(
  [
    'draw_jax.attention',
    'draw_jax.discretized_logistic',
    'draw_jax.distributions',
    'draw_jax.models',
    'draw_jax.tasks.bounds',
  ],
  'shape_checks.check',
)

# Tests call it by the name that it has since JAX 0.8.
if not hasattr(jax, 'enable_x64'):
  jax.enable_x64 = jax.experimental.enable_x64

# A shell starts what runs in the background with SIGINT ignored, and what the tests start would
# inherit that: those of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
  parser.addoption('--kills', type=int, default=2, help='how many the soak tries (tests/soak)')
  parser.addoption(
    '--damages', type=int, default=6, help='how many to each kind of files (tests/test_damage.py)'
  )
