import json
import types

import pytest
from ml_collections import config_dict

from draw_jax import config as config_lib
from draw_jax import trained
from draw_jax.evaluation import evaluator, paper, report
from draw_jax.tasks import base
from draw_jax.tasks import registry as tasks


def estimate(mean, **more):
  return {'mean': mean, 'stderr_images': 0.25, 'stderr_draws': None, 'bits_per_dim': 0.15, **more}


def describe(name='binarized_mnist', binarization='fixed', split='test', **more):
  """The report on made-up figures."""
  source = more.pop('source', {'workdir': 'runs/a', 'which': 'best'})
  about = {'provenance': {'sha256': more.pop('sha256')}} if 'sha256' in more else {}
  config = config_lib.default()
  config.model = more.pop('model', config.model)
  if 'attention' in config.model:
    config.model.attention = more.pop('attention', True)
  config.train.start_from = more.pop('start_from', None)
  model = trained.TrainedModel(
    'a', config, None, 500, config.model.glimpses, True, None, (28, 28, 1), 10, binarization,
    **about,
  )  # fmt: skip
  dataset = types.SimpleNamespace(
    name=name,
    binarization=binarization,
    resized=more.pop('resized', False),
    num_examples=lambda split: 10_000,
  )
  row = {
    'glimpses': 64,
    'bound': estimate(83.125),
    'reconstruction': estimate(60.0),
    'kl': estimate(23.125),
    'kl_glimpses': [0.5, 0.25],
    'importance': [estimate(81.5, samples=100, groups=1)],
  }
  fields = {'results': [row], 'examples': 10_000, 'draws': 100, 'partial': False, 'speed': 812.3}
  fields['metrics'] = {}
  measured = evaluator.Measurement(**{**fields, **more})
  options = base.EvaluationOptions(split=split, importance_samples=(100,), seed=3)
  return report.describe(model, dataset, options, measured, **source)


def table(result):
  """The report for people, in the words of the task of its model."""
  task = tasks.create(config_dict.ConfigDict(result['model']), (28, 28, 1), 10)
  return report.table(result, task)


def test_every_figure_is_labeled():
  text = table(describe())
  for label in (
    'binarized_mnist, binarization fixed, split test, 10,000 of 10,000 images',
    'draw with attention, runs/a, step 500 (best), EMA, trained with T 64',
    '100 an image: R 1 x K 100, seed 3',
    '812 images x samples a second',
  ):
    assert label in text
  lines = [line.split() for line in text.splitlines()]
  assert ['bound', '(Eq.', '12)', '83.125', '0.250', '-', '0.1500', '80.97'] in lines
  assert ['importance-weighted,', 'K', '100', '81.500', '0.250', '-', '0.1500'] in lines
  assert 'PARTIAL' not in text
  assert 'likelihood' not in text


def test_the_latents_in_use_come_first():
  latents = [[0.25, 0.0, 1.5], [0.5, 0.125, 2.0]]
  result = describe()
  result['results'][0]['kl_latents'] = latents
  lines = table(result).splitlines()
  title = 'KL of each of 3 latents over all glimpses, nats, the largest first'
  assert lines[lines.index(title) + 1] == '3.50 0.75 0.12'


def test_a_model_in_a_file_is_labeled_with_its_hash():
  result = describe(source={'file': 'mnist'}, sha256='0123456789abcdef')
  assert 'draw with attention, mnist (sha256 01234567), step 500, EMA, ' in table(result)
  assert (result['model_file'], result['workdir']) == ('mnist', None)


def test_a_model_that_went_on_from_another_says_so():
  result = describe(start_from='mnist')
  assert result['start_from'] == 'mnist'
  assert 'runs/a, step 500 after mnist (best), EMA' in table(result)


@pytest.mark.parametrize(('attention', 'expected'), [(True, 80.97), (False, 87.40)])
def test_the_papers_figure_for_the_same_task(attention, expected):
  result = describe(attention=attention)
  assert result['paper'] == expected
  assert f'{expected:.2f} nats {"with" if attention else "without"} attention' in (table(result))


def test_fewer_steps_are_not_compared():
  def row(glimpses):
    return {**describe()['results'][0], 'glimpses': glimpses}

  lines = table(describe(results=[row(4), row(64)])).splitlines()
  few, all_steps = (line for line in lines if line.startswith('bound'))
  assert '80.97' in all_steps
  assert '80.97' not in few
  small = config_lib.default().model
  small.glimpses = 4
  for alone in (describe(results=[row(4)]), describe(results=[row(4)], model=small)):
    assert alone['paper'] is None
    assert '80.97' not in table(alone)


@pytest.mark.parametrize(
  'task', [('mnist', 'dynamic', 'test'), ('binarized_mnist', 'fixed', 'valid')], ids=str
)
def test_no_figure_of_the_paper_for_another_task(task):
  result = describe(*task)
  assert result['paper'] is None
  text = table(result)
  assert 'not comparable' in text
  assert '80.97' not in text


def test_a_partial_result_says_so_and_is_not_compared():
  few = table(describe(partial=True, examples=300))
  assert few.startswith('PARTIAL')
  assert 'sorted by class' in few
  assert '300 of 10,000 images' in few
  all_images = table(describe(partial=True, draws=7))
  assert all_images.startswith('PARTIAL')
  assert 'sorted by class' not in all_images
  assert '7 an image' in all_images
  bound = next(line for line in few.splitlines() if line.startswith('bound'))
  assert '80.97' not in bound


@pytest.mark.parametrize(
  ('binarization', 'likelihood'), [('none', False), ('threshold', True), ('dynamic', True)]
)
def test_cross_entropy_is_not_called_a_likelihood(binarization, likelihood):
  result = describe('mnist', binarization)
  assert result['likelihood'] == likelihood
  text = table(result)
  assert ('cross-entropy + KL (Eq. 12)' in text) != likelihood
  assert ('are a likelihood of the pixels' in text) != likelihood


def test_the_entropy_of_intensities_stands_beside_their_cross_entropy():
  row = describe()['results'][0] | {'entropy_floor': estimate(55.5)}
  lines = [line.split() for line in table(describe('mnist', 'none', results=[row])).splitlines()]
  floor = lines.index(['entropy', 'of', 'the', 'intensities', '55.500', '0.250', '-', '0.1500'])
  assert floor > lines.index(['KL', '23.125', '0.250', '-', '0.1500'])


@pytest.mark.parametrize('resized', [False, True])
def test_a_likelihood_of_256_values_is_called_so(resized):
  model = config_lib.model_section('draw', output='discretized_logistic', components=2)
  result = describe('svhn', 'none', model=model, resized=resized)
  assert (result['likelihood'], result['resized']) == (True, resized)
  text = table(result)
  assert 'bound (Eq. 12)' in text
  assert 'note        a bound on the likelihood of 256 values, in nats' in text
  assert ('is that of the resized images' in text) == resized
  # Of binary pixels nothing needs to be said.
  assert 'note' not in table(describe(resized=resized))


def test_classification_table():
  rate = {'examples': 1000, 'errors': 34, 'rate': 0.034, 'interval': [0.0244, 0.0472]}
  empty = {'examples': 0, 'errors': 0, 'rate': None, 'interval': None}
  row = {'glimpses': 8, 'error': rate, 'classes': [rate, empty], 'confusion': [[966, 34], [0, 0]]}
  result = describe(model=config_lib.model_section('differentiable_ram'), results=[row])
  assert result['task'] == 'classification'
  lines = [line.split() for line in table(result).splitlines()]
  assert ['paper', *result['paper_note'].split()] in lines
  assert ['all', '3.40%', '2.44%', '-', '4.72%', '34', 'of', '1,000'] in lines
  assert ['966', '34'] in lines


@pytest.mark.parametrize(
  ('name', 'split', 'trained', 'glimpses', 'expected'),
  [
    ('cluttered_mnist', 'test', 8, 8, 3.36),
    ('cluttered_mnist', 'test', 4, 4, 4.18),
    ('cluttered_mnist', 'test', 8, 4, None),
    ('cluttered_mnist', 'test', 6, 6, None),
    ('cluttered_mnist', 'valid', 8, 8, None),
    ('mnist', 'test', 8, 8, None),
  ],
)
def test_the_papers_errors_for_the_same_task(name, split, trained, glimpses, expected):
  model = config_lib.model_section('differentiable_ram')
  model.glimpses = trained
  row = {'glimpses': glimpses, 'error': {}, 'classes': [], 'confusion': []}
  result = describe(name, 'none', split, model=model, results=[row])
  assert result['paper'] == expected
  assert (f'{expected} % errors' in result['paper_note']) == (expected is not None)


@pytest.mark.parametrize(
  ('model', 'glimpses', 'words'),
  [
    ('draw', 32, 'its figures are for T 64'),
    ('ram', 6, 'its figures are for T 4 or 8, in training too'),
    ('new', 8, 'it has no figures for new'),
  ],
)
def test_why_the_paper_is_not_comparable(model, glimpses, words):
  about = {
    'title': 'draw with attention' if model == 'draw' else model,
    'dataset': 'binarized_mnist' if model == 'draw' else 'cluttered_mnist',
    'binarization': 'fixed',
    'split': 'test',
    'trained_glimpses': glimpses,
  }
  assert paper.number(about, glimpses) == (None, f'not comparable: {words}')


def test_every_row_of_the_paper_is_found_by_a_title():
  titles = set()
  for name in tasks.MODELS:
    section = config_lib.model_section(name)
    if 'latent' in section:
      section.latent = 10  # Of dependent ones there cannot be many.
    titles.add(tasks.create(section, (100, 100, 1), 10).title)
    if 'attention' in section:
      section.attention = False
      titles.add(tasks.create(section, (100, 100, 1), 10).title)
  assert titles >= set(paper.ROWS)


def test_file_appears_whole_or_not_at_all(tmp_path):
  path = tmp_path / 'deep' / 'result.json'
  report.save(path, describe())
  first = path.read_text()
  assert json.loads(first)['results'][0]['bound']['mean'] == 83.125
  with pytest.raises(ValueError, match='JSON'):
    report.save(path, {'mean': float('nan')})
  assert path.read_text() == first
  assert list(path.parent.iterdir()) == [path]
