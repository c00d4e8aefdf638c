"""From a workdir to a file of its model, and to the same figures."""

import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import training_support as support
from test_trained import T, any_params, make_trained

import draw_jax
from draw_jax import trained
from draw_jax.errors import UserError
from draw_jax.tasks import registry as tasks
from draw_jax.training import checkpoint
from draw_jax.training import workdir as workdir_lib
from draw_jax.training.step import TrainState


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """Of a run that was saved at T, before the last phase of its curriculum."""
  folder = tmp_path_factory.mktemp('run')
  config = support.tiny_config(support.write_images(folder, num=110))
  workdir_lib.claim(folder, config)
  params = any_params(tasks.create(config.model, (8, 8, 1)))
  ema = jax.tree.map(lambda a: a * 1.5, params)
  key, zero = jax.random.key(5), jnp.int32(0)
  state = TrainState(jnp.int32(40), params, ema, optimizer=(zero,), key=key, rollbacks=zero)
  progress = {'glimpses': T, 'image_shape': (8, 8, 1), 'num_classes': None, 'binarization': 'none'}
  checkpoints = checkpoint.Checkpoints(folder, keep_latest=1, keep_best=1)
  checkpoints.save(state, progress, {'bound': 9.0}, (0, 9.0))
  checkpoints.close()
  return folder


def python(*arguments) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, *map(str, arguments)],
    env=support.environment() | {'JAX_COMPILATION_CACHE_DIR': str(support.CACHE)},
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def worker(folder: str, cases: str) -> None:
  """Prints what each row of flags of draw_jax.export ends with."""
  from absl import flags

  from draw_jax import export

  trained.folder = lambda: pathlib.Path(folder)
  ends = []
  for limit, *case in json.loads(cases):
    export.LIMIT = limit
    flags.FLAGS.unparse_flags()
    for name in flags.FLAGS:
      flags.FLAGS[name].unparse()
    try:
      flags.FLAGS(['export', *case])
      export.main()
      ends.append('done')
    except UserError as error:
      ends.append(str(error))
  print(json.dumps([ends, export._commit()]))


@pytest.fixture(scope='module')
def exported(workdir, tmp_path_factory):
  """The folder of shipped models after some calls, what each ended with, and the commit."""
  folder = tmp_path_factory.mktemp('shelf')
  given = f'--workdir={workdir}'
  output = f'--output={folder / "deep" / "a.safetensors"}'
  classifier = tmp_path_factory.mktemp('other') / 'classifier.safetensors'
  trained.save(classifier, make_trained('differentiable_ram'))
  cases = {
    (9_999, given, '--name=mnist', '--note=a'): 'done',
    (9_999, given, '--name=mnist', '--note=b'): 'mnist.safetensors is there already',
    (9_999, given, '--name=mnist', '--note=c', '--force'): 'done',
    (999, given, '--name=large'): 'ship with the package: give --output=FILE',
    (999, given, output): 'done',
    (999, given, '--name=../up'): '--name=../up must be of small letters',
    (999, given, '--output=a.pkl'): '--output=a.pkl must end with .safetensors',
    (999, given): 'give either --name=NAME or --output=FILE',
    (999, given, output, '--name=a'): 'give either --name=NAME or --output=FILE',
    (999, given, '--name=a', '--checkpoint=7'): 'no checkpoint',
    (999, f'--workdir={folder / "none"}', '--name=a'): 'does not exist',
    (999, '--name=a'): 'give either --workdir=DIR of a training run or --model=NAME',
    (999, '--model=mnist', '--latents=0', '--name=a'): '--latents=0 must be at least 1',
    (999, f'--model={classifier}', '--latents=3', '--name=a'): 'has no latents',
    (999, '--model=mnist', '--latents=1', f'--output={folder / "one.safetensors"}'): 'done',
    (999, '--model=mnist', '--latents=9', f'--output={folder / "nine.safetensors"}'): 'done',
  }
  done = python(__file__, folder, json.dumps(list(cases)))
  assert done.returncode == 0, done.stderr
  ends, commit = json.loads(done.stdout.splitlines()[-1])
  return folder, dict(zip(cases.items(), ends, strict=True)), commit


def test_export(exported):
  folder, ends, commit = exported
  for (case, expected), end in ends.items():
    assert expected in end, case
    assert '\n' not in end
  files = sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())
  assert files == [
    'deep/a.safetensors', 'mnist.safetensors', 'nine.safetensors', 'one.safetensors'
  ]  # fmt: skip
  provenance = draw_jax.load(folder / 'mnist.safetensors').provenance
  assert provenance['note'] == 'c'
  assert provenance['exported_with']['commit'] == commit
  head = subprocess.run(
    ['git', 'rev-parse', 'HEAD'], cwd=support.ROOT, capture_output=True, text=True, check=False
  )
  if head.returncode == 0:
    assert commit.removesuffix('-dirty') == head.stdout.strip()
  else:  # An archive of the files.
    assert commit is None


def test_a_file_with_other_latents(exported):
  mnist, one, nine = (
    draw_jax.load(exported[0] / f'{name}.safetensors') for name in ('mnist', 'one', 'nine')
  )
  assert (one.model.latent, nine.model.latent) == (1, 9)
  for made, num in ((one, 1), (nine, 9)):
    expected = mnist.model.with_latents(mnist.params, num)
    jax.tree.map(np.testing.assert_array_equal, made.params, expected)
    assert made.provenance['note'] == 'c'
  # That of the run is of another network than the one with fewer.
  assert one.provenance['validation'] is None
  assert nine.provenance['validation'] == mnist.provenance['validation'] is not None


def test_a_file_gives_the_bound_of_its_checkpoint(exported, workdir, tmp_path):
  """To the last bit, and says what it is."""
  path = exported[0] / 'mnist.safetensors'
  results = []
  for source in (f'--workdir={workdir}', f'--model={path}'):
    output = tmp_path / 'result.json'
    done = python(
      '-m', 'draw_jax.evaluate', source, '--split=valid', '--importance_samples=4',
      '--kl_latents', f'--output={output}',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results.append(json.loads(output.read_text()))
  ours, theirs = results[1], results[0]
  assert ours['results'] == theirs['results']
  assert (ours['results'][0]['glimpses'], ours['examples']) == (T, 11)
  assert (ours['model_file'], ours['workdir'], ours['checkpoint']) == (str(path), None, None)
  assert ours['sha256'] == draw_jax.load(path).provenance['sha256']
  same = ('dataset', 'binarization', 'step', 'ema', 'trained_glimpses', 'model')
  assert [ours[name] for name in same] == [theirs[name] for name in same]
  assert f'{path} (sha256 {ours["sha256"][:8]}), step 40, EMA' in done.stdout


if __name__ == '__main__':
  worker(*sys.argv[1:])
