"""Ending a run in good order when it is asked to."""

import signal

import jax
from jax.experimental import multihost_utils


class Stop:
  """Whether the run has been asked to end, at a step on which all processes agree.

  A second signal ends it at once.
  """

  def __init__(self):
    self.signal = None
    self._several = jax.process_count() > 1
    # Of several processes, JAX itself watches for SIGTERM and agrees on a step.
    watched = (signal.SIGINT,) if self._several else (signal.SIGINT, signal.SIGTERM)
    self._before = {number: signal.signal(number, self._caught) for number in watched}

  def _caught(self, number: int, frame) -> None:
    del frame
    self.signal = number
    self.restore()
    if self._several:
      signal.raise_signal(signal.SIGTERM)

  def reached(self, step: int) -> bool:
    """Whether to end after this step."""
    if not self._several:
      return self.signal is not None
    if not multihost_utils.reached_preemption_sync_point(step):
      return False
    self.signal = self.signal or signal.SIGTERM
    return True

  def restore(self) -> None:
    """Handles signals as before."""
    for number, handler in self._before.items():
      signal.signal(number, handler)
