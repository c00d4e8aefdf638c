"""Three processes of a run, each stood for by its end of the connections."""

import queue
import socket
import threading

import pytest

from draw_jax.devices import lifeline

KEY = b'k' * 32


class Exit(BaseException):
  """In place of the end of a process."""


@pytest.fixture
def codes(monkeypatch):
  """The exit codes of those that have ended, in order."""
  found = queue.Queue()

  def exit_thread(code):
    found.put(code)
    raise Exit

  monkeypatch.setattr(lifeline.os, '_exit', exit_thread)
  monkeypatch.setattr(lifeline, '_LINGER', 0)
  monkeypatch.setattr(threading, 'excepthook', lambda _: None)
  return found


def connected() -> list[lifeline.Lifeline]:
  first, port = lifeline.Lifeline.listen('127.0.0.1', 3, KEY)
  with socket.create_connection(('127.0.0.1', port)) as stranger:
    stranger.sendall(b'x' * 36)
  others = [lifeline.Lifeline.connect('127.0.0.1', port, KEY, i) for i in (1, 2)]
  lines = [first, *others]
  for line in lines:
    assert line._made.wait(30)
  assert sorted(first._peers) == [1, 2]
  return lines


@pytest.mark.parametrize('failing', [0, 1])
def test_all_learn_the_reason_of_one(codes, capsys, failing):
  lines = connected()
  with pytest.raises(Exit):
    lines[failing].end('error: no room', 2, 'no room')
  assert [codes.get(timeout=30) for _ in lines] == [2, 2, 2]
  told = sorted(capsys.readouterr().err.splitlines())
  assert told == ['error: no room', *2 * [f'error: process {failing} of this run failed: no room']]


def test_a_process_that_is_killed(codes, capsys):
  lines = connected()
  lines[2]._peers[0].shutdown(socket.SHUT_RDWR)  # As the system does for it.
  # Of the two ends of that connection, each sees the other go.
  assert {codes.get(timeout=30) for _ in lines} == {1}
  told = capsys.readouterr().err
  assert told.count('error: process 2 of this run failed: it ended without a word') == 2


def test_leaving_well_ends_nobody(codes, capsys):
  before = set(threading.enumerate())
  lines = connected()
  for line in lines:
    line.leave()
  for thread in set(threading.enumerate()) - before:
    thread.join(30)
    assert not thread.is_alive()
  assert codes.empty() and capsys.readouterr().err == ''


def test_without_a_connection_nothing_is_told(codes):
  line = lifeline.Lifeline.connect('127.0.0.1', 0, KEY, 1)
  line._made.set()  # not to wait
  line.leave()
  assert codes.empty()
