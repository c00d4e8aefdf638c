"""Kills, damages and full disks, on one process and on two.

    python -m pytest tests/soak -m soak --kills=100

prints a table of what was tried. Nothing may be lost: every run ends as one that nothing disturbed.
"""

import time

import pytest
import soak

SHARE_OF_TWO = 0.4  # They take longer.


@pytest.mark.soak
def test_nothing_is_lost(tmp_path, pytestconfig, capsys):
  kills, seed = pytestconfig.getoption('kills'), time.time_ns()
  of_two = max(1, int(SHARE_OF_TWO * kills))
  short = kills < len(soak.KILLS)
  soaks, begin = [], time.monotonic()

  def say(what: str) -> None:
    print(f'{time.monotonic() - begin:7.1f} s  {what}', flush=True)

  with capsys.disabled():
    print(f'\nseed {seed}')
    try:
      for num, some in ((1, kills - of_two), (2, of_two)):
        soaks.append(soak.Soak(tmp_path, num, seed + num, say))
        soaks[-1].go(some, soak.OTHERS[:1] if short and num > 1 else soak.OTHERS)
    finally:
      print(soak.table(soaks), flush=True)
  assert sum(len(s.tried[what]) for s in soaks for what in soak.KILLS) >= kills
