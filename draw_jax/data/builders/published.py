"""Files as their publishers ship them, and the TFDS builders that turn them into records."""

import contextlib
import dataclasses
import errno
import hashlib
import pathlib
import shutil
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from draw_jax.data.sources import Example
from draw_jax.errors import UserError

_TIMEOUT = 10  # seconds, for a server to answer
_DISK = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EROFS)  # no fault of the server


@dataclasses.dataclass(frozen=True)
class PublishedFile:
  """One file of a publisher.

  Attributes:
    url: where the publisher keeps it; its last part is the name of the file.
    size: of the published file, in bytes; None if only its hash is known.
    sha256: of the published file; None if only another hash is known.
    md5: of the published file, where that is what is known of it.
    folder: the folder that an archive unpacks to, which may stand for the archive.
    optional: whether a manual directory may lack it.
  """

  url: str
  size: int | None = None
  sha256: str | None = None
  md5: str | None = None
  folder: str | None = None
  optional: bool = False

  @property
  def name(self) -> str:
    return self.url.rpartition('/')[2]


class PublishedBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """Base of the builders: finds the files, and writes what `read` yields to array_record.

  A subclass states the attributes below and `read`. Its records keep the publisher's order.
  """

  VERSION = tfds.core.Version('1.0.0')
  dataset: str  # the name that users know it by
  page: str  # the publisher's page
  files: tuple[PublishedFile, ...]
  image_shape: tuple[int, int, int]
  labeled: bool = False
  ordered: bool = True  # whether `read` always yields in the same order

  def __init__(self, *, data_dir: str | None = None, manual_dir: str | None = None, **kwargs: Any):
    """Constructs the builder.

    Args:
      data_dir: where prepared datasets live; TFDS's own default if None.
      manual_dir: a folder that holds the published files; None to download them.
      **kwargs: for TFDS.
    """
    self.manual_dir = None if manual_dir is None else pathlib.Path(manual_dir).expanduser()
    super().__init__(data_dir=data_dir, file_format='array_record', **kwargs)

  @property
  def url_infos(self) -> dict[str, Any]:
    """The registered checksums, as TFDS's download manager wants them."""
    info = tfds.core.download.checksums.UrlInfo
    return {
      file.url: info(tfds.core.utils.Size(file.size), file.sha256, file.name)
      for file in self.files
      if file.sha256
    }

  @property
  def command(self) -> str:
    """The command that prepares the dataset from files got by hand."""
    return f'python -m draw_jax.prepare --dataset={self.dataset} --manual_dir=DIR'

  def beginning(self) -> str:
    """What to tell before it is prepared."""
    sizes = [file.size for file in self.files]
    size = f' {sum(sizes) / 1e6:.0f} MB' if all(sizes) else ''
    source = (
      f'from {self.manual_dir}' if self.manual_dir else f'from a download of{size or " files"}'
    )
    return f'prepares {self.dataset} in {self.data_dir}, once, {source}'

  def _by_hand(self, files: Iterable[PublishedFile]) -> str:
    """How to go on without a download."""
    *names, last = (file.name for file in files)
    listed = f'{", ".join(names)} and {last}' if names else last
    return f'get {listed} from {self.page} into DIR, then run\n  {self.command}'

  def read(self, paths: dict[str, pathlib.Path]) -> dict[str, Iterable[tuple[Any, Example]]]:
    """Reads the published files.

    Args:
      paths: the place of each file, by its published name.

    Returns:
      By split, (key, example) pairs. What can be checked without going through all the examples
      is checked before it returns.
    """
    raise NotImplementedError

  def left_out(self) -> str | None:
    """An optional file that the manual directory has, and what was prepared has not."""
    for file in self.files if self.manual_dir is not None else ():
      places = (self._root() / name for name in (file.folder, file.name))
      if file.optional and file.folder not in self.info.splits and any(p.exists() for p in places):
        return file.name
    return None

  def _info(self) -> tfds.core.DatasetInfo:
    features = {
      'image': tfds.features.Tensor(shape=self.image_shape, dtype=np.uint8, encoding='bytes')
    }
    if self.labeled:
      features['label'] = tfds.features.Scalar(dtype=np.int32)
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(features),
      homepage=self.page,
      disable_shuffling=self.ordered,
    )

  def _split_generators(self, dl_manager: Any) -> dict[str, Iterable[tuple[Any, Example]]]:
    if self.manual_dir is not None:
      return self.read(self._find())
    return self.read({file.name: self._download(dl_manager, file) for file in self.files})

  def _generate_examples(self, **kwargs: Any) -> None:
    raise NotImplementedError('the splits carry their own generators')

  def _download(self, dl_manager: Any, file: PublishedFile) -> pathlib.Path:
    """Returns the place of a downloaded file, which was checked."""
    downloads = pathlib.Path(dl_manager.download_dir)
    by_hand = self._by_hand(file for file in self.files if not file.optional)
    try:
      known = file.sha256 or file.url
      if not any(known in info.read_text() for info in downloads.rglob('*.INFO')):
        # TFDS tries for minutes to reach a server that is not there.
        request = urllib.request.Request(file.url, method='HEAD')
        urllib.request.urlopen(request, timeout=_TIMEOUT).close()
      with _clearing(downloads, file.url):
        path = pathlib.Path(dl_manager.download(file.url))
      if not file.sha256:  # Else TFDS has checked it.
        _check_download(path, file)
      return path
    except tfds.core.download.download_manager.NonMatchingChecksumError:
      raise UserError(f'{file.url} has a wrong checksum: {by_hand}') from None
    except (tfds.download.DownloadError, OSError) as error:
      if getattr(error, 'errno', None) in _DISK:
        raise
      raise UserError(f'{file.url} cannot be downloaded ({error}): {by_hand}') from None

  def _find(self) -> dict[str, pathlib.Path]:
    """Returns the place of each file in the manual directory."""
    if not self.manual_dir.is_dir():
      raise UserError(f'{self.manual_dir} is not a folder: give one that holds the files')
    root, paths, missing = self._root(), {}, []
    for file in self.files:
      for name in filter(None, (file.folder, file.name)):
        if (root / name).exists():
          paths[file.name] = root / name
          break
      else:
        if not file.optional:
          missing.append(file)
    if missing:
      raise UserError(f'{root / missing[0].name} is missing: {self._by_hand(missing)}')
    return paths

  def _root(self) -> pathlib.Path:
    """The manual directory, or the folder in it that has the dataset's name."""
    own = self.manual_dir / self.dataset
    return own if own.is_dir() else self.manual_dir


@contextlib.contextmanager
def _clearing(downloads: pathlib.Path, url: str) -> Iterator[None]:
  """Removes what a failed download of one file leaves, and nothing of other downloads."""
  pattern = f'{tfds.core.download.resource.get_dl_fname(url)}.tmp.*'
  before = set(downloads.rglob(pattern))
  try:
    yield
  except BaseException:
    for leftover in set(downloads.rglob(pattern)) - before:
      shutil.rmtree(leftover, ignore_errors=True)  # which leaves plain files
    raise


def _check_download(path: pathlib.Path, file: PublishedFile) -> None:
  """Removes a download that is not the published file, so that it is not taken the next time."""
  try:
    check_file(path, file)
  except UserError as error:
    path.unlink()
    path.with_name(f'{path.name}.INFO').unlink(missing_ok=True)
    raise UserError(f'{file.url}: {error}') from None


def check_content(path: pathlib.Path, content: bytes, sha256: str) -> None:
  """Compares a file's (uncompressed) content with the registered checksum."""
  _compare(path, hashlib.sha256(content).hexdigest(), sha256)


def check_file(path: pathlib.Path, file: PublishedFile) -> None:
  """Compares a file with its registered size and checksum, as far as they are known."""
  size = path.stat().st_size
  if file.size not in (None, size):
    raise UserError(f'{path} has {size} bytes, the published file {file.size}: get it again')
  for name in ('sha256', 'md5'):
    if registered := getattr(file, name):
      with open(path, 'rb') as stream:
        _compare(path, hashlib.file_digest(stream, name).hexdigest(), registered, name)


def _compare(path: pathlib.Path, found: str, registered: str, name: str = 'sha256') -> None:
  if found != registered:
    raise UserError(
      f'{path} has a wrong checksum: {name} {found[:12]}..., registered {registered[:12]}...; '
      'get it again'
    )
