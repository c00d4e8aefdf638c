"""Connections by which every process of a run learns at once that one has failed, and why.

JAX ends the others, too, but only after a timeout, or by an abort, and without the reason.
"""

import contextlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable

from absl import logging

_SILENT = 'it ended without a word, as when it is killed or out of memory'
# Seconds for a connection to be made, and for the others to end before process 0 does: JAX aborts
# them when they lose it.
_CONNECT, _LINGER = 5, 3
_ID_BYTES = 4


class Lifeline:
  """Connections of process 0 to all others, or of another one to process 0.

  Whoever cannot be connected, as behind a firewall, is left to the timeouts of JAX.
  """

  def __init__(self, process: int, quiet: bool):
    self._process, self._quiet = process, quiet
    self._peers: dict[int, socket.socket] = {}
    self._open: set[int] = set()  # peers that have neither left nor failed
    self._made = threading.Event()
    # Who holds it ends the process: it is never given back.
    self._ending = threading.Lock()

  @classmethod
  def listen(
    cls, host: str, num_processes: int, key: bytes, quiet: bool = False
  ) -> tuple['Lifeline', int]:
    """The lifeline of process 0 and the port it is at, 0 if there is none.

    Args:
      host: to listen on; '' for all interfaces.
      num_processes: how many there are, with this one.
      key: that the others show.
      quiet: whether to print nothing of them.
    """
    line = cls(0, quiet)
    try:
      family = socket.AF_INET6 if ':' in host else socket.AF_INET
      server = socket.create_server((host, 0), family=family, backlog=num_processes)
    except OSError as error:
      logging.info('no lifeline: %s', error)
      return line, 0
    _in_background(line._accept, server, num_processes, key)
    return line, server.getsockname()[1]

  @classmethod
  def connect(
    cls, host: str, port: int, key: bytes, process: int, quiet: bool = False
  ) -> 'Lifeline':
    """The lifeline of another process; it is connected in the background."""
    line = cls(process, quiet)
    if port:
      _in_background(line._connect, host, port, key)
    return line

  def hear(self) -> None:
    """Waits for the news, if there are any, that another process has failed, and ends with it."""
    time.sleep(_LINGER)

  def end(self, told: str, code: int, reason: str) -> None:
    """Prints what is told, tells the others why this process ends, and exits."""
    self._end(told, {'process': self._process, 'code': code, 'reason': reason})

  def leave(self) -> None:
    """Tells the others that this process ends well."""
    self._tell(self._peers, {'process': self._process, 'code': 0})

  def _accept(self, server: socket.socket, num_processes: int, key: bytes) -> None:
    with server:
      while len(self._peers) < num_processes - 1:
        peer, _ = server.accept()
        peer.settimeout(_CONNECT)
        with contextlib.suppress(OSError):
          shown = _read(peer, len(key) + _ID_BYTES)
          if hmac.compare_digest(shown[:-_ID_BYTES], key):
            self._watch(int.from_bytes(shown[-_ID_BYTES:], 'big'), peer)
    self._made.set()

  def _connect(self, host: str, port: int, key: bytes) -> None:
    try:
      peer = socket.create_connection((host, port), timeout=_CONNECT)
      peer.sendall(key + self._process.to_bytes(_ID_BYTES, 'big'))
    except OSError as error:
      logging.info('no lifeline: %s', error)
      return
    self._watch(0, peer)
    self._made.set()

  def _watch(self, process: int, peer: socket.socket) -> None:
    peer.settimeout(None)
    self._peers[process] = peer
    self._open.add(process)
    _in_background(self._listen_to, process, peer)

  def _listen_to(self, process: int, peer: socket.socket) -> None:
    """Ends this process with a peer, unless that one leaves well."""
    try:
      line = peer.makefile('rb').readline()
    except OSError:  # The connection was reset.
      line = b''
    self._open.discard(process)
    news = json.loads(line) if line else {'process': process, 'code': 1, 'reason': _SILENT}
    if news['code']:
      told = f'error: process {news["process"]} of this run failed: {news["reason"]}'
      self._end('' if self._quiet else told, news)

  def _end(self, told: str, news: dict) -> None:
    self._ending.acquire()
    with contextlib.suppress(OSError, ValueError):  # whose reader may have gone
      print(told, end='\n' if told else '', file=sys.stderr)
    self._made.wait(_CONNECT)
    self._tell([peer for peer in self._peers if peer != news['process']], news)
    limit = time.monotonic() + _LINGER
    while self._process == 0 and self._open and time.monotonic() < limit:
      time.sleep(0.01)
    for stream in (sys.stdout, sys.stderr):
      with contextlib.suppress(OSError, ValueError):
        stream.flush()
    # JAX would wait in its own end for processes that are not to come.
    os._exit(news['code'])

  def _tell(self, processes: Iterable[int], news: dict) -> None:
    line = json.dumps(news).encode() + b'\n'
    for process in list(processes):
      with contextlib.suppress(OSError):
        self._peers[process].sendall(line)


def _in_background(function, *arguments) -> None:
  threading.Thread(target=function, args=arguments, daemon=True).start()


def _read(peer: socket.socket, length: int) -> bytes:
  found = b''
  while len(found) < length and (more := peer.recv(length - len(found))):
    found += more
  return found
