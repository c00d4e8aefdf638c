"""From a workdir to files."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.errors import UserError
from draw_jax.figures import animation, gallery, grid, passes

SUFFIXES = {
  'sequences': ['png', 'pdf', 'npz'],
  'samples': ['png', 'pdf', 'npz'],
  'filters': ['png', 'pdf'],
  'zooming': ['png', 'pdf'],
  'curves': ['png', 'pdf'],
  'reconstructions': ['png', 'pdf', 'npz'],
  'interpolation': ['png', 'pdf', 'npz'],
}


def start(module, *arguments):
  command = [sys.executable, '-m', module, *arguments]
  return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope='module')
def run(workdir):
  return trained.find(str(workdir), None, 'latest')


def test_every_figure_is_made(run, workdir, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(gallery.animation, 'find_ffmpeg', lambda: None)
  options = gallery.FigureOptions(tmp_path, num=2, npz=True, compare=(str(workdir),))
  for name in set(gallery.FIGURES) - {'glimpses'}:  # those are of classifiers
    gallery.FIGURES[name](run, options)
  assert capsys.readouterr().out.count('ffmpeg on the PATH') == 1
  expected = {f'{name}.{suffix}' for name, suffixes in SUFFIXES.items() for suffix in suffixes}
  expected |= {'drawing.gif', 'reconstruction.gif', 'player.html'}
  assert {path.name for path in tmp_path.iterdir()} == expected
  assert Image.open(tmp_path / 'drawing.gif').n_frames == 3
  with np.load(tmp_path / 'reconstructions.npz') as arrays:
    assert arrays['images'].shape == (3, 2, 10, 14, 3)
    assert arrays['read_stride'].shape == arrays['kl'].shape == (3, 2)


def test_neighbors_are_searched_in_the_whole_training_set(run):
  assert sum(len(chunk) for chunk in run.training_images(7)) == run.dataset.num_examples('train')


def test_the_same_seed_gives_the_same_file(run, tmp_path):
  for name, seed in (('a', 0), ('b', 0), ('c', 1)):
    gallery.make_sequences(run, gallery.FigureOptions(tmp_path / name, num=1, seed=seed))
  first, again, other = ((tmp_path / n / 'sequences.png').read_bytes() for n in 'abc')
  assert first == again != other


def test_what_needs_no_data_is_made_without_them(run, tmp_path, capsys):
  config = run.config.copy_and_resolve_references()
  config.unlock()
  config.data.path = str(tmp_path / 'gone.npy')
  alone = dataclasses.replace(run, config=config, workdir=None)
  options = gallery.FigureOptions(tmp_path / 'out', num=1)
  gallery.make_samples(alone, options)
  gallery.make_player(alone, options)
  words = capsys.readouterr().out
  assert 'without nearest neighbors' in words and 'without reconstructions' in words
  assert (tmp_path / 'out' / 'samples.png').exists()
  assert (tmp_path / 'out' / 'player.html').exists()
  for make in (gallery.make_reconstructions, gallery.make_curves):
    with pytest.raises(UserError):
      make(alone, options)


def test_a_file_that_is_no_image_is_one_message(run, tmp_path):
  (tmp_path / 'a.txt').write_text('no image')
  options = gallery.FigureOptions(tmp_path, image=str(tmp_path / 'a.txt'))
  with pytest.raises(UserError, match=r'--image=.*a\.txt'):
    gallery.make_zooming(run, options)


def test_an_own_image_is_read_as_those_of_a_folder(run, tmp_path, monkeypatch):
  def show(image):
    image.save(tmp_path / 'x.png')
    return gallery._image(run, gallery.FigureOptions(tmp_path, image=str(tmp_path / 'x.png')))

  assert (show(Image.new('RGBA', (8, 6), (9, 9, 9, 0))) == 255).all()
  gray = np.full((6, 8), 257 * 100, np.uint16)
  np.testing.assert_array_equal(show(Image.fromarray(gray)), np.full((6, 8, 3), 100))
  monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 10)
  with pytest.raises(UserError, match=r'--image=.*x\.png cannot be read'):
    show(Image.new('L', (8, 6)))


def test_data_are_those_that_it_was_trained_on(workdir, tmp_path):
  loaded = trained.find(str(workdir), None, 'latest')
  assert loaded.config.data.binarization is None
  # As if the dataset had had another default when it was trained.
  changed = dataclasses.replace(loaded, binarization='threshold')
  assert changed.dataset.binarization == 'threshold'
  assert set(np.unique(changed.held_out_images(3, 0))) == {0, 1}
  np.save(tmp_path / 'others.npy', np.full((4, 9, 14, 3), 200, np.uint8))
  with loaded.config.unlocked():
    loaded.config.data.path = str(tmp_path / 'others.npy')
  with pytest.raises(UserError, match='are 9 x 14 x 3, the model was trained on 10 x 14 x 3'):
    dataclasses.replace(loaded).held_out_images(3, 0)


@pytest.mark.parametrize(
  ('workdir', 'model', 'words'),
  [
    (None, None, '--workdir'),
    ('somewhere', 'mnist', '--workdir'),
    (None, 'minst5', "no model 'minst5'"),
    ('/nowhere/at/all', None, 'does not exist'),
  ],
)
def test_a_run_that_is_not_there_is_one_message(workdir, model, words):
  with pytest.raises(UserError, match=words):
    trained.find(workdir, model)


def test_curves_of_another_kind_are_not_compared(run, tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('{"split": "train", "step": 1, "error": 9.0}\n')
  options = gallery.FigureOptions(tmp_path / 'out', compare=(str(tmp_path),))
  with pytest.raises(UserError, match='has no bound to compare: it holds a model of another kind'):
    gallery.make_curves(run, options)


def test_curves_of_other_data_are_not_compared(run, tmp_path):
  """Or cross-entropies of intensities would stand under the label of bounds."""
  (tmp_path / 'metrics.jsonl').write_text('{"split": "train", "step": 1, "bound": 9.0}\n')
  config = config_lib.default()
  config.data.name = 'svhn'
  (tmp_path / 'config.json').write_text(config_lib.to_json(config))
  options = gallery.FigureOptions(tmp_path / 'out', compare=(str(tmp_path),))
  with pytest.raises(UserError, match='was trained on svhn with binarization none, '):
    gallery.make_curves(run, options)


def test_an_unknown_figure_is_one_message_that_names_the_others():
  assert gallery.choose(['all']) == gallery.choose(['all', 'curves']) == list(gallery.FIGURES)
  assert gallery.choose(['curves', 'player']) == ['curves', 'player']
  with pytest.raises(UserError, match=r'sequence is not known.* sequences, samples'):
    gallery.choose(['player', 'sequence'])


def test_the_papers_figures_are_of_known_kinds():
  assert {figure for _, figure in gallery.PAPER.values()} <= set(gallery.FIGURES)
  # Fig. 2 is a diagram of the network.
  assert set(gallery.PAPER) == set(range(1, 13)) - {2}


def test_no_figure_at_all_is_no_success(workdir, tmp_path):
  (tmp_path / 'file').write_text('')
  same = ['draw_jax.figures', f'--workdir={workdir}', '--checkpoint=latest']
  jobs = {
    'cannot make the folder': start(*same, f'--output={tmp_path / "file"}'),
    '--figure= is not known': start(*same, f'--output={tmp_path / "a"}', '--figure='),
    'leave out --workdir': start(*same, f'--output={tmp_path / "c"}', '--paper'),
  }
  for message, job in jobs.items():
    out, errors = job.communicate()
    assert (job.returncode, out) == (2, '')
    assert errors.startswith('error: ') and message in errors
  assert not (tmp_path / 'a').exists()


def test_both_binaries_write_what_was_asked_for(run, workdir, tmp_path):
  same = [f'--workdir={workdir}', '--checkpoint=latest', '--seed=3']
  jobs = [
    start(
      'draw_jax.sample', *same, f'--output={tmp_path / "a"}', '--num=5', '--columns=5', '--npz'
    ),
    start('draw_jax.figures', *same, f'--output={tmp_path / "b"}', '--figure=curves'),
  ]
  for job in jobs:
    _, errors = job.communicate()
    assert job.returncode == 0, errors
  images = passes.generate(run.model, run.params, 5, seed=3).images
  with np.load(tmp_path / 'a' / 'samples.npz') as arrays:
    np.testing.assert_allclose(arrays['images'], images[-1], rtol=1e-5)
  scale = animation.default_scale(5 * 14)
  with Image.open(tmp_path / 'a' / 'samples.png') as image:
    expected = grid.tile(images[-1], 5, scale=scale).astype(int)
    assert np.abs(np.asarray(image) - expected).max() <= 1
  assert Image.open(tmp_path / 'a' / 'samples.gif').n_frames == 3
  assert {path.name for path in (tmp_path / 'b').iterdir()} == {'curves.png', 'curves.pdf'}
