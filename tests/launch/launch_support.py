"""Stand-ins for the commands of schedulers and clouds."""

import json
import pathlib
import re
import subprocess

from training_support import ROOT

LAUNCH = ROOT / 'launch'
# As far as the training command goes until its processes have found each other.
JOIN = """
import json, os, sys, jax
from absl import flags
from draw_jax.cli import app
from draw_jax.devices import processes
app.define_process_flags()
values = flags.FLAGS
rest = values(sys.argv, known_only=True)[1:]
# They wait for each other for long: the machine may be busy.
processes.join(values.coordinator_address, values.num_processes, values.process_id, 200)
gpus = jax.config.read('jax_cuda_visible_devices')
line = json.dumps([jax.process_index(), jax.process_count(), gpus, rest])
# In one piece: another process writes to the same pipe.
os.write(1, f'{line}\\n'.encode())
"""


def joined(stdout: str) -> list[list]:
  """What the processes of JOIN printed, sorted; Gloo speaks, too."""
  # Gloo's lines come in pieces, between which others may stand.
  return sorted(map(json.loads, re.findall(r'\[\d+, \d+, (?:null|".*?"), \[.*?\]\]', stdout)))


def write_stub(path: pathlib.Path, text: str) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  path.chmod(0o755)


def run(command, **more) -> subprocess.CompletedProcess:
  command = [str(part) for part in command]
  return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)
