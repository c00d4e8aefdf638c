"""What GitHub would run: that what the workflows call is there, and how little they may do."""

import configparser
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml
from training_support import ROOT

from draw_jax import config as config_lib

GITHUB = ROOT / '.github'
WORKFLOWS = sorted(GITHUB.glob('workflows/*.yml'))
FORMS = sorted(GITHUB.glob('ISSUE_TEMPLATE/*.yml'))


def load(path: pathlib.Path) -> dict:
  return yaml.safe_load(path.read_text())


def setup_cfg() -> configparser.ConfigParser:
  config = configparser.ConfigParser()
  config.read(ROOT / 'setup.cfg')
  return config


def jobs() -> list[tuple[str, dict]]:
  return [
    (f'{path.stem}.{name}', job) for path in WORKFLOWS for name, job in load(path)['jobs'].items()
  ]


def steps() -> list[dict]:
  return [step for _, job in jobs() for step in job.get('steps', [])]


def missing(run: str) -> set[str]:
  """What a command of a workflow calls or reads, and this project does not have."""
  config = setup_cfg()
  extras = {name for group in re.findall(r'\[([\w,]+)\]', run) for name in group.split(',')}
  files = set(re.findall(r'(?:bash|python|-c) ([\w/.-]+\.\w+)', run))
  commands = set(re.findall(r'^ *(draw-\w+)', run, re.M))
  known = {
    line.split(' = ')[0] for line in config['options.entry_points']['console_scripts'].split('\n')
  }
  return {
    *(extras - set(config['options.extras_require'])),
    *(name for name in files if not (ROOT / name).is_file()),
    *(commands - known),
    *(set(re.findall(r'--config=(\w+)', run)) - set(config_lib.shipped_experiments())),
  }


@pytest.mark.parametrize('step', [step['run'] for step in steps() if 'run' in step])
def test_what_is_called_is_there(step):
  assert missing(step) == set()


@pytest.mark.parametrize(
  ('run', 'found'),
  [
    ('bash launch/nothing.sh', {'launch/nothing.sh'}),
    ("pip install -c launch/none.txt -e '.[digits,nothing]'", {'launch/none.txt', 'nothing'}),
    ('cd here\ndraw-nothing --config=mnits', {'draw-nothing', 'mnits'}),
  ],
)
def test_what_is_not_there_is_seen(run, found):
  assert missing(run) == found


def test_the_tests_run_on_every_python_with_three_sets_of_dependencies():
  matrix = load(GITHUB / 'workflows' / 'tests.yml')['jobs']['tests']['strategy']['matrix']
  classifiers = setup_cfg()['metadata']['classifiers']
  assert matrix['python'] == re.findall(r'Python :: (3\.\d+)', classifiers)
  files = {one['dependencies']: one['constraints'] for one in matrix['include']}
  files[matrix['dependencies'][0]] = matrix['constraints'][0]
  assert files.keys() == {'tested', 'oldest', 'newest'} and files['newest'] == '/dev/null'
  assert (ROOT / files['tested']).is_file() and (ROOT / files['oldest']).is_file()


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_read_and_one_job_may_publish(path):
  assert load(path)['permissions'] == {'contents': 'read'}
  allowed = {name: job['permissions'] for name, job in jobs() if 'permissions' in job}
  assert allowed == {'release.publish': {'id-token': 'write'}}
  text = path.read_text()
  assert 'secrets.' not in text and 'pull_request_target' not in text
  # What others may choose, such as the name of a branch, reaches no shell as code.
  assert not [step for step in steps() if '${{' in step.get('run', '')]


def test_actions_have_a_major_version():
  used = [step['uses'] for step in steps() if 'uses' in step]
  assert len(used) >= 10
  for action in used:
    assert re.fullmatch(r'[\w-]+/[\w-]+@(release/)?v\d+', action), action
  # The same one everywhere.
  assert len({action.partition('@')[0] for action in used}) == len(set(used))


def test_jobs_end_and_follow_on_those_that_are_there():
  for path in WORKFLOWS:
    found = load(path)['jobs']
    for job in found.values():
      if 'uses' in job:
        assert (ROOT / job['uses']).is_file()
        assert 'workflow_call' in load(ROOT / job['uses'])[True]  # YAML reads `on` as true.
      else:
        assert job['timeout-minutes'] <= 60
      assert job.get('needs', next(iter(found))) in found


def test_what_is_published_is_what_was_tested():
  release = load(GITHUB / 'workflows' / 'release.yml')['jobs']
  assert release['publish']['needs'] == 'tests' and release['tests']['needs'] == 'version'
  (fetched,) = (s['with'] for s in release['publish']['steps'] if 'download' in s['uses'])
  wheel = load(GITHUB / 'workflows' / 'tests.yml')['jobs']['wheel']['steps']
  (kept,) = (s['with'] for s in wheel if 'upload' in s.get('uses', ''))
  assert fetched['name'] == kept['name'] and fetched['path'] == kept['path'] == 'dist/'
  assert any('twine check --strict' in step.get('run', '') for step in wheel)


@pytest.mark.parametrize(('tag', 'code'), [('v{}', 0), ('v9{}', 1), ('v{}.1', 1)])
def test_a_tag_of_another_version_is_not_published(tag, code):
  (step,) = (
    s for s in load(GITHUB / 'workflows' / 'release.yml')['jobs']['version']['steps'] if 'run' in s
  )
  name = tag.format(setup_cfg()['metadata']['version'])
  done = subprocess.run(
    step['run'], shell=True, cwd=ROOT, env={'GITHUB_REF_NAME': name, 'PATH': '/usr/bin:/bin'},
    capture_output=True, check=False,
  )  # fmt: skip
  assert done.returncode == code


def test_links_of_the_readme_lead_to_the_repository(tmp_path):
  (step,) = (step for step in steps() if step.get('name', '').startswith('Links to files'))
  shutil.copy(ROOT / 'README.md', tmp_path)
  environment = {'REPOSITORY': 'https://host/us/it', 'GITHUB_SHA': 'abc', 'PATH': '/usr/bin:/bin'}
  subprocess.run(step['run'], shell=True, cwd=tmp_path, env=environment, check=True)
  before, after = ((root / 'README.md').read_text() for root in (ROOT, tmp_path))
  links = re.findall(r'(!?)\[[^]]*\]\(([^)\s]+)\)', before)
  expected = [
    link
    if ':' in link or link.startswith('#')
    else f'https://host/us/it/{"raw" if shown else "blob"}/abc/{link}'
    for shown, link in links
  ]
  assert [link for _, link in re.findall(r'(!?)\[[^]]*\]\(([^)\s]+)\)', after)] == expected
  assert any('/raw/' in link for link in expected) and any('/blob/' in link for link in expected)
  assert [line for line in after.splitlines() if '](' not in line] == [
    line for line in before.splitlines() if '](' not in line
  ]


def test_what_checks_a_commit_is_what_checks_all():
  (repository,) = load(ROOT / '.pre-commit-config.yaml')['repos']
  tested = (ROOT / 'launch' / 'constraints.txt').read_text().split()
  assert repository['rev'].replace('v', 'ruff==') in tested
  assert [hook['id'] for hook in repository['hooks']] == ['ruff-check', 'ruff-format']


@pytest.mark.parametrize('path', FORMS, ids=lambda path: path.stem)
def test_forms_for_issues(path):
  form = load(path)
  if path.stem == 'config':
    assert form == {'blank_issues_enabled': True}
    return
  assert form.keys() == {'name', 'description', 'labels', 'body'}
  ids = [part['id'] for part in form['body']]
  assert len(set(ids)) == len(ids) >= 2
  for part in form['body']:
    assert part['type'] == 'textarea' and part['attributes'].keys() >= {'label', 'description'}
    assert isinstance(part['validations']['required'], bool)
