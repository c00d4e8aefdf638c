"""Ending in good order when asked to."""

import contextlib
import signal
import threading
from collections.abc import Iterator

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
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as it is under nohup
      watched = (*watched, signal.SIGHUP)
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
    for number, handler in self._before.items():
      signal.signal(number, handler)


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
  """Gives a list that Ctrl-C adds to, besides the KeyboardInterrupt that it raises.

  That is raised wherever the program stands, and lost where it is in a destructor.
  """
  caught = []
  before = signal.getsignal(signal.SIGINT)
  # Only the main thread may handle signals, and some programs ignore this one.
  if not callable(before) or threading.current_thread() is not threading.main_thread():
    yield caught
    return

  def remember(number: int, frame) -> None:
    caught.append(number)
    before(number, frame)

  signal.signal(signal.SIGINT, remember)
  try:
    yield caught
  finally:
    signal.signal(signal.SIGINT, before)
