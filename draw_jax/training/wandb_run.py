"""A run of Weights & Biases, beside metrics.jsonl and TensorBoard, where a config names a project.

Who writes there, and whether at once or later, is said to W&B as ever: `wandb login`, or its
variables of the environment such as WANDB_MODE=offline.
"""

import importlib.util
import pathlib
import secrets
from collections.abc import Mapping

import numpy as np

from draw_jax import files
from draw_jax.errors import UserError, first_line

# The id of the run there, in the workdir: what goes on here goes on there.
_ID = 'wandb_id.txt'


def check_installed(project: str | None) -> None:
  """Raises a `UserError` if there is a project, and no package to write to it with."""
  if project is not None and importlib.util.find_spec('wandb') is None:
    raise UserError(
      f"log.wandb_project={project} takes the package wandb: pip install 'draw_jax[wandb]'."
    )


class WandbRun:
  """What `draw_jax.training.run_log.RunLog` writes, as one run of W&B."""

  def __init__(self, workdir: pathlib.Path, config):
    import wandb  # Not with the package, and slow.

    self._image = wandb.Image
    try:
      self._run = wandb.init(
        project=config.log.wandb_project,
        id=_id(workdir),
        resume='allow',
        name=files.name(workdir),
        config=config.to_dict(),
        dir=None if files.is_remote(workdir) else str(workdir),
        settings=wandb.Settings(console='off'),  # What is printed stays with who started the run.
      )
    except wandb.Error as error:
      raise UserError(
        f'log.wandb_project={config.log.wandb_project}: {first_line(error)} Try wandb login, or '
        'WANDB_MODE=offline in the environment and wandb sync later.'
      ) from error
    # W&B's own count only grows; a run that goes on from a checkpoint repeats some of its steps.
    self._run.define_metric('step')
    self._run.define_metric('*', step_metric='step')

  def row(self, split: str, step: int, numbers: Mapping[str, float]) -> None:
    """The numbers of one row, by the names that they have in TensorBoard."""
    self._run.log({f'{split}/{name}': value for name, value in numbers.items()} | {'step': step})

  def images(self, step: int, images: Mapping[str, np.ndarray]) -> None:
    """Batches of images, uint8 [B, H, W, C]."""
    shown = {name: [self._image(image) for image in batch] for name, batch in images.items()}
    self._run.log(shown | {'step': step})

  def close(self) -> None:
    """Writes what is left; to begin anew with the same workdir goes on."""
    self._run.finish()


def _id(workdir: pathlib.Path) -> str:
  path = files.place(workdir) / _ID
  if not files.is_there(path):
    files.write_text(path, secrets.token_hex(4) + '\n')
  return path.read_text().strip()
