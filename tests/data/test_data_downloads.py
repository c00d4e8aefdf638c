"""Published files, downloaded when asked."""

import dataclasses
import errno
import functools
import hashlib
import http.server
import os
import threading

import pytest
import tensorflow_datasets as tfds
from data_support import refuse, register

from draw_jax.data.builders import binarized_mnist, mnist, preparation
from draw_jax.errors import UserError

Amat = binarized_mnist.DrawBinarizedMnist


@pytest.fixture
def server():
  """Serves a folder over HTTP and counts what was got."""
  servers = []

  def serve(folder):
    got = []

    class Handler(http.server.SimpleHTTPRequestHandler):
      def do_GET(self):
        got.append(self.path.lstrip('/'))
        super().do_GET()

      def log_message(self, *args):
        pass

    handler = functools.partial(Handler, directory=str(folder))
    servers.append(http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler))
    threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
    return f'http://127.0.0.1:{servers[-1].server_port}/', got

  yield serve
  for one in servers:
    one.shutdown()
    one.server_close()


def test_download(tiny_amat, tmp_path, monkeypatch, server, capsys):
  url, got = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)
  builder = preparation.prepare(Amat, str(tmp_path / 'data'))
  written = capsys.readouterr()
  assert (written.out, written.err.count('\n')) == ('', 1)
  assert f'prepares binarized_mnist in {builder.data_dir}, once, from a download' in written.err
  assert builder.info.splits['train'].num_examples == 6
  assert sorted(got) == sorted(file.name for file in Amat.files)
  preparation.prepare(Amat, str(tmp_path / 'data'))
  assert len(got) == 3


def test_download_of_files_of_which_only_the_md5_is_known(tiny_amat, tmp_path, monkeypatch, server):
  url, got = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)
  known = [dataclasses.replace(file, size=None, sha256=None) for file in Amat.files]
  hashes = [hashlib.md5((tiny_amat / file.name).read_bytes()).hexdigest() for file in known]
  files = [dataclasses.replace(f, md5=md5) for f, md5 in zip(known, hashes, strict=True)]
  monkeypatch.setattr(Amat, 'files', (dataclasses.replace(files[0], md5='0' * 32), *files[1:]))
  refuse(Amat, tmp_path, 'has a wrong checksum: md5 .*, registered 000000000000')
  monkeypatch.setattr(Amat, 'files', tuple(files))
  # The wrong one is not kept.
  builder = preparation.prepare(Amat, str(tmp_path / 'data'))
  assert builder.info.splits['train'].num_examples == 6
  assert sorted(got) == sorted([files[0].name, *(file.name for file in files)])


def test_download_of_compressed_files(tiny_mnist, tmp_path, monkeypatch, server):
  url, _ = server(tiny_mnist)
  register(monkeypatch, mnist.DrawMnist, tiny_mnist, url)
  builder = preparation.prepare(mnist.DrawMnist, str(tmp_path / 'data'))
  assert builder.info.splits['test'].num_examples == 10


def test_download_with_a_wrong_checksum(tiny_amat, tmp_path, monkeypatch, server):
  url, _ = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)
  path = tiny_amat / 'binarized_mnist_train.amat'
  path.write_bytes(path.read_bytes()[:-1] + b'x')
  refuse(Amat, tmp_path, 'binarized_mnist_train.amat has a wrong checksum: get')


def test_a_failed_download_clears_what_is_its_own(tiny_amat, tmp_path, monkeypatch, server):
  url, _ = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)
  downloads = tmp_path / 'data' / 'downloads'
  name = tfds.core.download.resource.get_dl_fname(Amat.files[0].url)
  others = [downloads / f'{name}.tmp.before', downloads / 'other.tmp.before']
  others.append(downloads / 'other.tmp.meanwhile')
  for folder in others[:2]:
    folder.mkdir(parents=True)
  (downloads / f'{name}.tmp.plain').write_text('a file')
  own = downloads / f'{name}.tmp.own'

  def fail(self, address):
    others[2].mkdir()
    own.mkdir()
    (own / 'part').write_text('half of it')
    raise tfds.download.DownloadError('the line is cut')

  monkeypatch.setattr(tfds.download.DownloadManager, 'download', fail)
  with pytest.raises(UserError, match='the line is cut'):
    preparation.prepare(Amat, str(tmp_path / 'data'))
  assert all(folder.is_dir() for folder in others)
  assert (downloads / f'{name}.tmp.plain').is_file()
  assert not own.exists()


def test_a_download_leaves_others_running(tiny_amat, tmp_path, monkeypatch, server):
  url, _ = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)
  names = [tfds.core.download.resource.get_dl_fname(file.url) for file in Amat.files]
  folders = [tmp_path / 'data' / 'downloads' / f'{name}.tmp.meanwhile' for name in names]
  download = tfds.download.DownloadManager.download

  def slow(self, address):
    folders[len(started)].mkdir()
    started.append(address)
    return download(self, address)

  started = []
  monkeypatch.setattr(tfds.download.DownloadManager, 'download', slow)
  preparation.prepare(Amat, str(tmp_path / 'data'))
  assert all(folder.is_dir() for folder in folders)


def test_download_to_a_full_disk(tiny_amat, tmp_path, monkeypatch, server):
  url, _ = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)

  def fail(self, address):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  monkeypatch.setattr(tfds.download.DownloadManager, 'download', fail)
  refuse(Amat, tmp_path, 'cannot write into --data_dir=.*: No space left on device')


def test_download_of_a_file_that_is_not_there(tiny_amat, tmp_path, monkeypatch, server):
  url, _ = server(tiny_amat)
  register(monkeypatch, Amat, tiny_amat, url)
  (tiny_amat / 'binarized_mnist_train.amat').unlink()
  names = ', '.join(file.name for file in Amat.files[:-1]) + f' and {Amat.files[-1].name}'
  refuse(Amat, tmp_path, rf'cannot be downloaded \(HTTP Error 404(.|\n)*: get {names} from http')


def test_no_network(tiny_amat, tmp_path, monkeypatch):
  register(monkeypatch, Amat, tiny_amat, 'http://127.0.0.1:1/')
  refuse(
    Amat, tmp_path, 'cannot be downloaded .*--dataset=binarized_mnist'.replace('.*', '(.|\n)*')
  )
