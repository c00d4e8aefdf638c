"""Chromium without a window, driven through its DevTools protocol over a pair of pipes."""

import base64
import json
import os
import pathlib
import select
import shlex
import shutil
import subprocess
import time

PROGRAM = shutil.which('chromium') or shutil.which('google-chrome')
FLAGS = [
  '--headless=new',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
_SECONDS = 60.0


class Browser:
  """One page of a browser of its own; `with` ends it.

  Attributes:
    problems: what the page told the console, exceptions among it.
    requests: the addresses that it asked for.
  """

  def __init__(self, profile: pathlib.Path):
    self.problems: list[str] = []
    self.requests: list[str] = []
    self._count, self._replies, self._buffer, self._session = 0, {}, b'', None
    theirs_in, self._out = os.pipe()
    self._in, theirs_out = os.pipe()
    command = [PROGRAM, *FLAGS, f'--user-data-dir={profile}', '--remote-debugging-pipe']
    # It reads from descriptor 3 and writes to descriptor 4.
    self._process = subprocess.Popen(
      ['bash', '-c', f'exec {shlex.join(command)} 3<&{theirs_in} 4>&{theirs_out} 2>/dev/null'],
      pass_fds=(theirs_in, theirs_out),
    )
    os.close(theirs_in)
    os.close(theirs_out)
    target = self.call('Target.createTarget', url='about:blank')['targetId']
    attached = self.call('Target.attachToTarget', targetId=target, flatten=True)
    self._session = attached['sessionId']
    # Requests of workers come from sessions of their own, which `_notice` listens to.
    self.call('Target.setAutoAttach', autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
    for domain in ('Page', 'Runtime', 'Network', 'Log'):
      self.call(f'{domain}.enable')

  def __enter__(self) -> 'Browser':
    return self

  def __exit__(self, *_) -> None:
    self._process.terminate()
    try:
      self._process.wait(10)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.wait()
    os.close(self._in)
    os.close(self._out)

  def call(self, method: str, **params) -> dict:
    """The result of one command of the protocol."""
    number = self._send(method, self._session, params)
    end = time.monotonic() + _SECONDS
    while number not in self._replies:
      self._receive(end - time.monotonic(), method)
    reply = self._replies.pop(number)
    assert 'error' not in reply, (method, reply)
    return reply['result']

  def open(self, address: str, ready: str = 'true') -> None:
    self.call('Page.navigate', url=address)
    self.wait_for(f'document.readyState === "complete" && ({ready})')

  def evaluate(self, expression: str):
    """The value of an expression in the page; JSON has to be able to hold it."""
    reply = self.call(
      'Runtime.evaluate', expression=expression, awaitPromise=True, returnByValue=True
    )
    assert 'exceptionDetails' not in reply, (expression, reply)
    return reply['result'].get('value')

  def wait_for(self, condition: str) -> None:
    end = time.monotonic() + _SECONDS
    while not self.evaluate(condition):
      assert time.monotonic() < end, f'{condition} is still false; {self.problems}'
      time.sleep(0.02)

  def mouse(self, kind: str, x: float, y: float) -> None:
    """`kind` is Pressed, Moved or Released, with the left button."""
    self.call(
      'Input.dispatchMouseEvent', type=f'mouse{kind}', x=x, y=y, button='left', clickCount=1
    )

  def key(self, key: str, **more) -> None:
    text = {'text': key} if len(key) == 1 else {}
    self.call('Input.dispatchKeyEvent', type='keyDown', key=key, **text, **more)
    self.call('Input.dispatchKeyEvent', type='keyUp', key=key, **more)

  def size(self, width: int, height: int) -> None:
    self.call(
      'Emulation.setDeviceMetricsOverride',
      width=width, height=height, deviceScaleFactor=1, mobile=width < 500,
    )  # fmt: skip

  def scheme(self, name: str) -> None:
    """'light' or 'dark'."""
    feature = {'name': 'prefers-color-scheme', 'value': name}
    self.call('Emulation.setEmulatedMedia', features=[feature])

  def screenshot(self, path: pathlib.Path) -> None:
    """Of the whole page, however long."""
    reply = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(reply['data']))

  def _send(self, method: str, session: str | None, params: dict) -> int:
    """The number that the reply will have."""
    self._count += 1
    message = {'id': self._count, 'method': method, 'params': params}
    if session:
      message['sessionId'] = session
    content = json.dumps(message).encode() + b'\0'
    while content:
      content = content[os.write(self._out, content) :]
    return self._count

  def _receive(self, seconds: float, what: str) -> None:
    ready, _, _ = select.select([self._in], [], [], max(seconds, 0))
    chunk = os.read(self._in, 2**20) if ready else b''
    assert chunk, f'the browser did not answer {what}'
    *messages, self._buffer = (self._buffer + chunk).split(b'\0')
    for message in map(json.loads, messages):
      if 'id' in message:
        self._replies[message['id']] = message
      else:
        self._notice(message['method'], message['params'])

  def _notice(self, method: str, params: dict) -> None:
    if method == 'Target.attachedToTarget' and params['waitingForDebugger']:
      for command in ('Network.enable', 'Runtime.runIfWaitingForDebugger'):
        self._send(command, params['sessionId'], {})
    elif method == 'Runtime.exceptionThrown':
      self.problems.append(str(params['exceptionDetails']))
    elif method == 'Runtime.consoleAPICalled':
      self.problems.append(str(params['args']))
    elif method == 'Log.entryAdded':
      self.problems.append(params['entry']['text'])
    elif method == 'Network.requestWillBeSent':
      self.requests.append(params['request']['url'])
