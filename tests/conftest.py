"""Shapes are checked at run time in every test."""

import signal

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

# A shell starts what runs in the background with SIGINT ignored, and what the tests start would
# inherit that: those of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
  parser.addoption('--kills', type=int, default=2, help='how many the soak tries (tests/soak)')
  parser.addoption(
    '--damages', type=int, default=6, help='how many to each kind of files (tests/test_damage.py)'
  )
