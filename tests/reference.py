"""DRAW from the paper's equations: NumPy, float64, explicit loops, one example at a time.

Nothing is taken from the package, whose results are held against these. Letters
are the paper's: an image is B rows by A columns, pixels and filters count from
1. `model` is anything with `attention`, `read_size` and `write_size`.
"""

import decimal
import functools
from math import exp, log, pi
from typing import NamedTuple

import jax
import numpy as np
import pytest

TOLERANCE = {'float32': 1e-5, 'float64': 1e-10}


class Window(NamedTuple):
  """The five numbers of a grid of filters."""

  g_x: float
  g_y: float
  variance: float
  delta: float
  gamma: float


def window(raw, N: int, B: int, A: int) -> Window:
  """Eqs. 21-24. The paper has no delta for N = 1; it then takes that of N = 2."""
  gaps = N - 1 if N > 1 else 1
  return Window(
    g_x=(A + 1) / 2 * (raw[0] + 1),
    g_y=(B + 1) / 2 * (raw[1] + 1),
    variance=exp(raw[2]),
    delta=(max(A, B) - 1) / gaps * exp(raw[3]),
    gamma=exp(raw[4]),
  )


def filterbank(g: float, delta: float, variance: float, N: int, length: int) -> np.ndarray:
  """Eqs. 19-20 and 25-26: N filters over `length` pixels."""
  F = np.zeros((N, length))
  for i in range(1, N + 1):
    mu = g + (i - N / 2 - 0.5) * delta
    for a in range(1, length + 1):
      F[i - 1, a - 1] = exp(-((a - mu) ** 2) / (2 * variance))
    Z = sum(F[i - 1])
    for a in range(1, length + 1):
      F[i - 1, a - 1] /= Z
  return F


def exact_filterbank(g, delta, variance, N: int, length: int) -> np.ndarray:
  """`filterbank` of Decimals in 60 digits, where the weights are too small for a float."""
  F = np.zeros((N, length))
  limits = {'Emin': decimal.MIN_EMIN, 'Emax': decimal.MAX_EMAX}
  with decimal.localcontext(decimal.Context(prec=60, **limits)):
    for i in range(1, N + 1):
      mu = g + decimal.Decimal(i - N / 2 - 0.5) * delta
      weights = [(-((a - mu) ** 2) / (2 * variance)).exp() for a in range(1, length + 1)]
      F[i - 1] = [float(weight / sum(weights)) for weight in weights]
  return F


def filterbanks(w: Window, N: int, B: int, A: int):
  """F_Y [N, B] and F_X [N, A]."""
  F_Y = filterbank(w.g_y, w.delta, w.variance, N, B)
  F_X = filterbank(w.g_x, w.delta, w.variance, N, A)
  return F_Y, F_X


def read(x, w: Window, N: int) -> np.ndarray:
  """Eq. 27 for one image: [B, A, C] to [N, N, C]."""
  B, A, C = x.shape
  F_Y, F_X = filterbanks(w, N, B, A)
  patch = np.zeros((N, N, C))
  for j, i, c in np.ndindex(N, N, C):
    for b, a in np.ndindex(B, A):
      patch[j, i, c] += w.gamma * F_Y[j, b] * x[b, a, c] * F_X[i, a]
  return patch


def write(patch, w: Window, B: int, A: int) -> np.ndarray:
  """Eq. 29 for one patch: [N, N, C] to [B, A, C]."""
  N, _, C = patch.shape
  F_Y, F_X = filterbanks(w, N, B, A)
  change = np.zeros((B, A, C))
  for b, a, c in np.ndindex(B, A, C):
    for j, i in np.ndindex(N, N):
      change[b, a, c] += F_Y[j, b] * patch[j, i, c] * F_X[i, a] / w.gamma
  return change


def sigmoid(v: float) -> float:
  return 1 / (1 + exp(-v))


def linear(params, v) -> np.ndarray:
  """W(v)."""
  out = np.array(params['bias'], np.float64)
  for i, o in np.ndindex(params['kernel'].shape):
    out[o] += v[i] * float(params['kernel'][i, o])
  return out


def lstm(params, h, c, inputs):
  """One step of an LSTM with forget gates: the next h and c."""
  D = len(h)
  gates = linear(params, [*inputs, *h])
  h_next, c_next = np.zeros(D), np.zeros(D)
  for d in range(D):
    put, forget, candidate, show = (gates[k * D + d] for k in range(4))
    c_next[d] = sigmoid(forget) * c[d] + sigmoid(put) * np.tanh(candidate)
    h_next[d] = sigmoid(show) * np.tanh(c_next[d])
  return h_next, c_next


def bernoulli_log_prob(logits, x) -> float:
  """x log p + (1 - x) log(1 - p), summed over an image."""
  total = 0.0
  for index in np.ndindex(x.shape):
    p = sigmoid(logits[index])
    total += x[index] * log(p) + (1 - x[index]) * log(1 - p)
  return total


def normal_log_density(z: float, mean: float, std: float) -> float:
  return -0.5 * log(2 * pi) - log(std) - (z - mean) ** 2 / (2 * std**2)


def initial(params, *names):
  """The learned starting values of a network or of the canvas, in float64."""
  return [np.array(params[name], np.float64) for name in names]


def draw_step(model, params, canvas, h_dec, c_dec, z):
  """Eqs. 7-8 with 18 or 28-29: the next canvas, h_dec, c_dec, and the window or None."""
  B, A, C = canvas.shape
  h_dec, c_dec = lstm(params['decoder'], h_dec, c_dec, z)
  patch = linear(params['write'], h_dec)
  if not model.attention:
    return canvas + patch.reshape(B, A, C), h_dec, c_dec, None
  N = model.write_size
  w = window(linear(params['write_window'], h_dec), N, B, A)
  return canvas + write(patch.reshape(N, N, C), w, B, A), h_dec, c_dec, w


def read_step(model, params, x, error, h_dec):
  """Eq. 17 or 27: the glimpse as a vector, and the window or None."""
  if not model.attention:
    return [*x.ravel(), *error.ravel()], None
  N = model.read_size
  w = window(linear(params['read_window'], h_dec), N, *x.shape[:2])
  return [*read(x, w, N).ravel(), *read(error, w, N).ravel()], w


def latent_step(params, h_enc, noise):
  """Eqs. 1-2 and 10-11: z, and KL and log q(z) - log p(z) of each latent."""
  Z = len(noise)
  statistics = linear(params['posterior'], h_enc)
  z, kl, log_ratio = np.zeros(Z), np.zeros(Z), np.zeros(Z)
  for j in range(Z):
    mean, std = statistics[j], exp(statistics[Z + j])
    z[j] = mean + std * noise[j]
    kl[j] = (mean**2 + std**2 - log(std**2)) / 2 - 1 / 2
    log_ratio[j] = normal_log_density(z[j], mean, std) - normal_log_density(z[j], 0, 1)
  return z, kl, log_ratio


def infer_one(model, params, x, noise) -> dict:
  """Eqs. 3-12 for one example: x [B, A, C], noise [T, Z]."""
  x = np.array(x, np.float64)
  (canvas,) = initial(params, 'canvas')
  h_enc, c_enc = initial(params['encoder'], 'h', 'c')
  h_dec, c_dec = initial(params['decoder'], 'h', 'c')
  steps = []
  for noise_t in noise:
    error = np.zeros_like(x)
    for index in np.ndindex(x.shape):
      error[index] = x[index] - sigmoid(canvas[index])
    glimpse, read_window = read_step(model, params, x, error, h_dec)
    h_enc, c_enc = lstm(params['encoder'], h_enc, c_enc, [*glimpse, *h_dec])
    z, kl, log_ratio = latent_step(params, h_enc, noise_t)
    canvas, h_dec, c_dec, write_window = draw_step(model, params, canvas, h_dec, c_dec, z)
    steps.append((sum(kl), sum(log_ratio), kl, z, canvas, write_window, read_window))
  names = 'kl', 'log_ratio', 'kl_latents', 'latents', 'canvases', 'write', 'read'
  out = {name: value for name, value in zip(names, zip(*steps, strict=True), strict=True)}
  reconstruction = -bernoulli_log_prob(canvas, x)
  loss = reconstruction + sum(out['kl'])
  return out | {'reconstruction': reconstruction, 'canvas': canvas, 'loss': loss}


def decode_one(model, params, latents) -> dict:
  """Eqs. 14-15 for one example: latents [T, Z]."""
  (canvas,) = initial(params, 'canvas')
  h_dec, c_dec = initial(params['decoder'], 'h', 'c')
  steps = []
  for z in latents:
    canvas, h_dec, c_dec, write_window = draw_step(model, params, canvas, h_dec, c_dec, z)
    steps.append((canvas, write_window))
  canvases, windows = zip(*steps, strict=True)
  return {'canvas': canvas, 'canvases': canvases, 'write': windows}


def batch(run_one, model, params, *arrays) -> dict:
  """`infer_one` or `decode_one` of each example; arrays are (x and) [T, B, Z].

  Values of a step are [T, B, ...], windows [T, B, 5], others [B, ...].
  """
  num = arrays[-1].shape[1]
  examples = []
  for n in range(num):
    examples.append(run_one(model, params, *(x[n] for x in arrays[:-1]), arrays[-1][:, n]))
  whole = {'canvas', 'reconstruction', 'loss'}
  out = {}
  for name, value in examples[0].items():
    if name in whole or value[0] is not None:
      out[name] = np.stack([e[name] for e in examples], 0 if name in whole else 1)
  return out


def assert_close(actual, expected, tolerance: float):
  """The largest error is within `tolerance` of the largest expected magnitude."""
  actual, expected = np.asarray(actual), np.asarray(expected)
  assert actual.shape == expected.shape
  assert np.isfinite(expected).all()
  np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def both_precisions(test):
  """Runs a test of an argument `dtype` with 'float32' and, with x64 on, 'float64'."""

  @pytest.mark.parametrize('dtype', TOLERANCE)
  @functools.wraps(test)
  def run(*args, dtype, **kwargs):
    with jax.enable_x64(dtype == 'float64'):
      test(*args, dtype=dtype, **kwargs)

  return run
