"""The manifests for Kubernetes: their published schema, and that their parts fit together."""

import pathlib
import re
import socket
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from launch_support import JOIN, LAUNCH, joined, run
from training_support import ROOT, environment

FOLDER = LAUNCH / 'kubernetes'
# The oldest with all that is used, and the newest that the validator knows.
VERSIONS = ('1.31', kubernetes_validate.latest_version())
MANIFESTS = {
  document['kind']: document
  for path in sorted(FOLDER.glob('*.yaml'))
  for document in yaml.safe_load_all(path.read_text())
}
SERVICE, JOB, CLAIM = (MANIFESTS[kind] for kind in ('Service', 'Job', 'PersistentVolumeClaim'))
POD = JOB['spec']['template']['spec']
[CONTAINER] = POD['containers']


@pytest.mark.parametrize('version', VERSIONS)
@pytest.mark.parametrize('kind', MANIFESTS)
def test_schema(kind, version):
  kubernetes_validate.validate(MANIFESTS[kind], version, strict=True)


def test_parts_fit_together():
  name = JOB['metadata']['name']
  assert SERVICE['spec']['clusterIP'] == 'None'
  assert SERVICE['spec']['selector'] == {'batch.kubernetes.io/job-name': name}
  assert POD['subdomain'] == SERVICE['metadata']['name']
  [volume] = POD['volumes']
  assert volume['persistentVolumeClaim']['claimName'] == CLAIM['metadata']['name']
  assert CLAIM['spec']['accessModes'] == ['ReadWriteMany']
  [mount] = CONTAINER['volumeMounts']
  assert mount['name'] == volume['name']
  kept = [flag.split('=')[1] for flag in CONTAINER['args'] if flag.startswith('--workdir=')]
  kept += [variable['value'] for variable in CONTAINER['env'] if 'value' in variable]
  assert len(kept) == 3
  assert all(pathlib.PurePath(path).is_relative_to(mount['mountPath']) for path in kept)


def test_restarts_what_was_stopped():
  spec = JOB['spec']
  # Without it a policy for failures is refused.
  assert POD['restartPolicy'] == 'Never'
  rules = spec['podFailurePolicy']['rules']
  codes = {}
  for rule in rules:
    if 'onExitCodes' in rule:
      assert rule['onExitCodes']['containerName'] == CONTAINER['name']
      assert rule['onExitCodes']['operator'] == 'In'
      codes |= dict.fromkeys(rule['onExitCodes']['values'], rule['action'])
  assert codes == {143: 'Ignore', 2: 'FailJob'}
  conditions = [c for rule in rules for c in rule.get('onPodConditions', ())]
  assert conditions == [{'type': 'DisruptionTarget', 'status': 'True'}]
  assert POD['terminationGracePeriodSeconds'] >= 60


def arguments(index: int, address: str) -> list[str]:
  """The flags of one process, its variables filled in, with a coordinator that is here."""
  [variable] = [v for v in CONTAINER['env'] if 'valueFrom' in v]
  assert variable['valueFrom']['fieldRef'] == {
    'fieldPath': "metadata.annotations['batch.kubernetes.io/job-completion-index']"
  }
  flags = [flag.replace(f'$({variable["name"]})', str(index)) for flag in CONTAINER['args']]
  host = f'{JOB["metadata"]["name"]}-0.{SERVICE["metadata"]["name"]}:8476'
  assert f'--coordinator_address={host}' in flags
  return [flag.replace(host, address) for flag in flags]


def test_processes_find_each_other():
  spec = JOB['spec']
  count = spec['completions']
  assert (spec['completionMode'], spec['parallelism']) == ('Indexed', count)
  assert f'--num_processes={count}' in CONTAINER['args']
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{listener.getsockname()[1]}'
  # In a pod these are set; a service account that may read pods is not to be needed.
  env = {**environment(), 'KUBERNETES_SERVICE_HOST': '10.0.0.1', 'JOB_COMPLETION_INDEX': '0'}
  processes = [
    subprocess.Popen(
      [sys.executable, '-c', JOIN, *arguments(index, address)],
      env=env,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(count)
  ]
  try:
    outputs = [process.communicate(timeout=120) for process in processes]
  finally:
    for process in processes:
      process.kill()
  assert [process.returncode for process in processes] == [0] * count, outputs
  found = [joined(stdout)[0][:3] for stdout, _ in outputs]
  assert found == [[index, count, 'all'] for index in range(count)]
  assert not any('Kubernetes' in stderr for _, stderr in outputs)


def test_command_is_accepted():
  assert CONTAINER['command'] == ['python', '-m', 'draw_jax.train']
  command = [sys.executable, *CONTAINER['command'][1:], *arguments(1, 'h:1')]
  done = run([*command, '--only_check_args'], env=environment(), cwd=ROOT)
  assert (done.returncode, done.stderr) == (0, '')


def test_unedited_is_refused():
  # The API server requires an image, and of a class a name in lower case, without a dash below.
  assert CONTAINER['image'] == ''
  name = CLAIM['spec']['storageClassName']
  assert not re.fullmatch(r'[a-z0-9]([a-z0-9.-]*[a-z0-9])?', name)


def test_image_has_what_it_copies():
  lines = (FOLDER / 'Dockerfile').read_text().replace('\\\n', ' ').splitlines()
  copied = [source for line in lines if line.startswith('COPY ') for source in line.split()[1:-1]]
  assert all((ROOT / source).exists() for source in copied)
  # Nothing else is sent to the builder: no runs, no history.
  ignored, *kept, caches = (FOLDER / 'Dockerfile.dockerignore').read_text().split()
  assert (ignored, caches) == ('*', '**/__pycache__')
  assert sorted(kept) == sorted(f'!{source}' for source in copied)
