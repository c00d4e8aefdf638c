"""Kills, damages and full disks, on one process and on two.

    python -m pytest tests/soak -m soak --kills=100

prints a table of what was tried. Nothing may be lost: every run ends as one that nothing disturbed.
"""

import time

import pytest
import soak

SHARE_OF_TWO = 0.35  # They take longer.


@pytest.mark.soak
def test_nothing_is_lost(tmp_path, pytestconfig, capsys):
  kills, seed = pytestconfig.getoption('kills'), time.time_ns()
  of_two = max(1, int(SHARE_OF_TWO * kills))
  short = kills < len(soak.KILLS)
  soaks, begin = {}, time.monotonic()

  def say(what: str) -> None:
    print(f'{time.monotonic() - begin:7.1f} s  {what}', flush=True)

  with capsys.disabled():
    print(f'\nseed {seed}')
    try:
      # In turn, so that a soak that is stopped has tried both.
      left = {1: kills - of_two, 2: of_two}
      while left:
        for num, most in list(left.items()):
          if num not in soaks:
            soaks[num] = soak.Soak(tmp_path, num, seed + num, say)
          before = soaks[num].kills()
          soaks[num].go(most, soak.OTHERS[:1] if short and num > 1 else soak.OTHERS)
          left[num] -= soaks[num].kills() - before
        left = {num: most for num, most in left.items() if most}
    finally:
      print(soak.table(list(soaks.values())), flush=True)
  assert sum(s.kills() for s in soaks.values()) >= kills
