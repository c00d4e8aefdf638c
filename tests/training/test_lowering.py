"""Every experiment's programs as GPUs and TPUs would get them, though neither is there.

`jax.export` lowers a program for other platforms from the shapes of its arguments, on a mesh of
devices that are not there either. What the compilers of these platforms make of it is not seen
here: they place the collectives of evaluation, which none of the operations below shows.
"""

import functools
import pathlib
import types
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax import export
from jax.interpreters import mlir

from draw_jax import config as config_lib
from draw_jax.devices import sharding
from draw_jax.evaluation import evaluator
from draw_jax.figures import passes
from draw_jax.tasks import base
from draw_jax.training import setup, step

EXPERIMENTS = pathlib.Path(__file__).parents[2] / 'experiments'
PLATFORMS = ('cuda', 'tpu')
CLUTTERED = ('8_glimpses', '4_glimpses', 'ram_8', 'ram_4', 'convolutional')
SHAPES = {
  'quickstart.py': (28, 28, 1),
  'mnist.py': (28, 28, 1),
  'mnist.py:no_attention': (28, 28, 1),
  'mnist.py:gray': (28, 28, 1),
  'dependent_latents.py': (28, 28, 1),
  'class_conditional.py': (28, 28, 1),
  'convolutional_draw.py': (28, 28, 1),
  'convolutional_draw.py:cifar10': (32, 32, 3),
  'omniglot.py': (28, 28, 1),
  'two_digit_mnist.py': (60, 60, 1),
  'svhn.py': (54, 54, 3),
  'cifar10.py': (32, 32, 3),
  'cifar10.py:likelihood': (32, 32, 3),
  'own_images.py': (32, 32, 3),
  **{f'cluttered_mnist.py:{variant}': (100, 100, 1) for variant in CLUTTERED},
}
CLASSES = 10
# The batches of every experiment divide among two.
MESH = jax.sharding.AbstractMesh((2,), (sharding.AXIS,), axis_types=(jax.sharding.AxisType.Auto,))


class Operation(NamedTuple):
  name: str
  looped: bool  # whether a loop repeats it
  types: tuple[str, ...]  # of the elements of operands and results
  target: str  # of a custom call


class Program(NamedTuple):
  operations: list[Operation]
  donated: int  # arrays that it may use up

  def named(self, name: str) -> list[Operation]:
    return [operation for operation in self.operations if operation.name == name]


def lower(function, *arguments, **static) -> Program:
  """A jitted function for all platforms at once."""
  exported = export.export(function, platforms=PLATFORMS)(*arguments, **static)
  assert exported.platforms == PLATFORMS
  with mlir.make_ir_context():
    module = mlir.ir.Module.parse(exported.mlir_module())
    functions = {function.attributes['sym_name'].value: function for function in module.body}
    given = functions['main'].attributes['arg_attrs']
    donors = ('jax.buffer_donor', 'tf.aliasing_output')
    donated = sum(any(name in attributes for name in donors) for attributes in given)
    return Program(list(operations(functions['main'], functions)), donated)


def operations(parent, functions, looped: bool = False):
  """All operations inside one, and those of the functions that it calls."""
  for region in parent.regions:
    for operation in (operation for block in region for operation in block):
      operation, attributes = operation.operation, operation.attributes
      elements = [element(value.type) for value in (*operation.operands, *operation.results)]
      target = 'call_target_name'
      target = attributes[target].value if target in attributes else ''
      yield Operation(operation.name, looped, tuple(elements), target)
      yield from operations(operation, functions, looped or operation.name == 'stablehlo.while')
      if operation.name == 'func.call':
        yield from operations(functions[attributes['callee'].value], functions, looped)


def element(kind) -> str:
  return str(getattr(kind, 'element_type', kind))


def check(program: Program, dtype: str, reductions: int) -> None:
  """What holds for every program."""
  # Neither calls of Python nor of anything else that is not in the program.
  assert [operation.target for operation in program.named('stablehlo.custom_call')] == []
  assert not {operation.name for operation in program.operations} & {
    'stablehlo.infeed', 'stablehlo.outfeed', 'stablehlo.send', 'stablehlo.recv',
    'stablehlo.all_gather', 'stablehlo.all_to_all', 'stablehlo.reduce_scatter',
    'stablehlo.collective_permute', 'stablehlo.collective_broadcast',
  }  # fmt: skip
  # The integers of 64 bits are those that JAX counts random numbers with.
  kinds = {kind for operation in program.operations for kind in operation.types}
  assert kinds <= {'f32', 'bf16', 'i1', 'ui8', 'i32', 'ui32', 'ui64'}
  assert [o.looped for o in program.named('stablehlo.all_reduce')] == [False] * reductions
  products = [operation.types for operation in program.named('stablehlo.dot_general')]
  assert {total for *_, total in products} == {'f32'}
  assert ('bf16' in kinds) == (('bf16', 'bf16', 'f32') in products) == (dtype == 'bfloat16')


class Case(NamedTuple):
  """An experiment, and the shapes of what its programs are given."""

  config: Any
  task: base.Task
  train_step: Any
  state: step.TrainState

  def batch(self, section: str):
    size = self.config[section].batch_size
    kinds = {'image': (self.task.model.image_shape, np.uint8), 'label': ((), np.int32)}
    if section == 'eval':
      kinds['mask'] = (), np.bool_
    return {
      name: jax.ShapeDtypeStruct((size, *shape), dtype, sharding=sharding.by_batch(MESH))
      for name, (shape, dtype) in kinds.items()
    }


@functools.cache
def load(name: str, dtype: str) -> Case:
  config, shape = config_lib.from_file(str(EXPERIMENTS / name)), SHAPES[name]
  if 'dtype' in config.model:
    config.model.dtype = dtype
  prepared = setup.make(config, shape, CLASSES, mesh=MESH)
  state = jax.tree.map(
    lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding.replicated(MESH)),
    jax.eval_shape(prepared.init(), np.zeros(shape, np.float32)),
  )
  return Case(config, prepared.task, prepared.train_step(), state)


# The network that leaves no choice of a type has float32.
TYPED = [name for name in SHAPES if not name.endswith(':convolutional')]
CASES = [(name, 'float32') for name in SHAPES] + [(name, 'bfloat16') for name in TYPED]
every_case = pytest.mark.parametrize(('name', 'dtype'), CASES)


def test_every_experiment_is_here():
  files = [path.name for path in EXPERIMENTS.glob('*.py') if 'def get_config(' in path.read_text()]
  assert {name.partition(':')[0] for name in SHAPES} == set(files)
  assert [name for name in SHAPES if 'dtype' in load(name, 'float32').config.model] == TYPED


@every_case
def test_training(name, dtype):
  case = load(name, dtype)
  program = lower(case.train_step, case.state, case.batch('train'))
  check(program, dtype, reductions=1)
  assert program.donated == len(jax.tree.leaves(case.state))
  # The glimpses of RAM are written out in a row.
  loops = case.task.model.glimpses > 1 and 'ram_' not in name
  assert bool(program.named('stablehlo.while')) == loops


@every_case
def test_evaluation(name, dtype):
  case = load(name, dtype)
  num, draws = case.config.model.glimpses, case.task.draws
  options = base.EvaluationOptions(
    importance_samples=(10,) * draws, latents=draws, batch_size=case.config.eval.batch_size
  )
  dataset = types.SimpleNamespace(num_classes=CLASSES, num_examples=lambda split: 1000)
  glimpses = tuple(sorted({1, num}))
  function = evaluator.Evaluator(case.task, dataset, options, MESH, glimpses).program
  number = jax.ShapeDtypeStruct((), np.int32)
  program = lower(function, case.state.params, case.batch('eval'), number, number)
  check(program, dtype, reductions=0)


@pytest.mark.parametrize(('name', 'dtype'), [c for c in CASES if 'cluttered' not in c[0]])
def test_generation(name, dtype):
  """As draw_jax.sample does it for its animation, on one device."""
  task, state = load(name, dtype).task, load(name, dtype).state
  params = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), state.params)
  key = jax.eval_shape(jax.random.key, 0)
  indices = jax.ShapeDtypeStruct((passes.CHUNK,), np.int32)
  given = jax.eval_shape(lambda: task.chosen(passes.CHUNK, None))
  fixed = {'glimpses': task.model.glimpses, 'trace': True, 'binary': True}
  program = lower(passes._generate, task.model, params, key, indices, given, **fixed)
  check(program, dtype, reductions=0)
