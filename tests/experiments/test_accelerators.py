"""The page of what accelerators are expected to do: its tables, and how they are counted."""

import json
import subprocess
import sys

import training_support as support

BENCHMARKS = support.ROOT / 'experiments' / 'benchmarks'
PAGE = support.ROOT / 'docs' / 'accelerators.md'


def worker() -> None:
  """Prints what is counted in a program of a loop and a product, for 100 images."""
  sys.path.insert(0, str(BENCHMARKS))
  import accelerators as script
  import jax
  import jax.numpy as jnp
  import numpy as np

  def program(x, w, ys):
    def step(h, y):
      return jnp.dot(h.astype('bfloat16'), w.astype('bfloat16'), preferred_element_type='f4'), h

    h, kept = jax.lax.scan(step, x, ys)
    return h @ w, kept

  num = script._BATCH
  shapes = [(num, 5), (5, 5), (3, num, 2)]
  arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
  found = dict.fromkeys(('again', 'state', 'kept', 'outside', 'working'), np.zeros(2))
  script._move(jax.make_jaxpr(program)(*arrays).jaxpr, 1, found)
  print(json.dumps({name: list(linear) for name, linear in found.items()}))


def python(*arguments) -> str:
  done = subprocess.run(
    [sys.executable, *map(str, arguments)],
    env=support.environment(), capture_output=True, text=True, timeout=300, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  return done.stdout


def test_what_is_counted():
  """Bytes without the batch, and those of each image."""
  assert json.loads(python(__file__)) == {
    'again': [3 * 25 * 2, 0],  # the matrix, in bfloat16
    'state': [0, 3 * 2 * 5 * 4],
    'kept': [0, 3 * (2 + 5) * 4],
    'outside': [25 * 4, 2 * 5 * 4],
    'working': [25 * 2, 5 * 4],
  }


def test_the_page_has_the_tables_of_the_script(tmp_path):
  page = tmp_path / PAGE.name
  page.write_text(PAGE.read_text())
  python(BENCHMARKS / 'accelerators.py', f'--page={page}')
  assert page.read_text() == PAGE.read_text(), (
    'python experiments/benchmarks/accelerators.py --page=docs/accelerators.md puts them there'
  )
  assert 'was measured on an accelerator' in page.read_text()


if __name__ == '__main__':
  worker()
