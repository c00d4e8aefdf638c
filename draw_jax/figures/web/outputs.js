'use strict';
/* D(X | c), Section 2.2: what canvases say about images, as in draw_jax.distributions.

Each output is a function of the channels C of an image and the components K of a mixture; it gives
`mean`, of canvases to intensities in [0, 1], and `logProb`, of the canvas of one image and that
image, in nats.
*/
const Outputs = (() => {
  const sigmoid = x => 1 / (1 + Math.exp(-x));
  const logSigmoid = x => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));
  const clip = (x, low, high) => Math.min(Math.max(x, low), high);

  function logSumExp(values) {
    const largest = values.reduce((a, b) => Math.max(a, b));
    return largest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - largest), 0));
  }

  const bernoulli = () => ({
    mean: canvas => canvas.map(sigmoid),
    logProb: (canvas, x) => canvas.reduce(
      (sum, c, i) => sum + x[i] * logSigmoid(c) + (1 - x[i]) * logSigmoid(-c), 0),
  });

  /* As in draw_jax.discretized_logistic, whose constants and letters these are. */
  function discretized_logistic(channels, components) {
    const LARGEST = 1e6, LOG_SCALES = [-7, 7], HALF = 1 / 255;
    const count = components * (1 + 2 * channels + channels * (channels - 1) / 2) - 1;

    /* The mixture of pixel i: log weights, and what stands in a row of K for each of `which`. */
    function mixture(canvas, i) {
      const at = k => clip(canvas[i * count + k], -LARGEST, LARGEST);
      const logits = Array.from({length: components}, (_, k) => k ? at(k - 1) : 0);
      const total = logSumExp(logits);
      const row = which => k => at(components - 1 + which * components + k);
      return {
        logWeights: logits.map(logit => logit - total),
        mean: (c, k) => row(c)(k),
        logScale: (c, k) => clip(row(channels + c)(k), ...LOG_SCALES),
        coupling: (c, b, k) => row(2 * channels + c * (c - 1) / 2 + b)(k),
      };
    }

    /* The center of component k in channel c, moved by the values of the channels before. */
    function center({mean, coupling}, c, k, before) {
      let moved = mean(c, k);
      for (let b = 0; b < c; b++)
        moved += coupling(c, b, k) * (before[b] - clip(mean(b, k), -1, 1));
      return moved;
    }

    /* Log-probability of the bin around a level, from 0 to 255. */
    function bin(middle, logScale, level) {
      const inverse = Math.exp(-logScale), apart = 2 * HALF * level - 1 - middle;
      const first = level <= 0, last = level >= 255;
      return (last ? 0 : logSigmoid((apart + HALF) * inverse))
        + (first ? 0 : logSigmoid((HALF - apart) * inverse))
        + (first || last ? 0 : Math.log(-Math.expm1(-2 * HALF * inverse)));
    }

    /* The mean of a logistic variable that is clipped to [-1, 1]. */
    function clippedMean(middle, logScale) {
      const inverse = Math.exp(-logScale);
      const [above, below] = [1, -1].map(end => Math.log1p(Math.exp(-Math.abs(end - middle) * inverse)));
      return clip(middle, -1, 1) + (below - above) / inverse;
    }

    function mean(canvas) {
      const result = new Float64Array(canvas.length / count * channels).fill(.5);
      for (let i = 0; i < canvas.length / count; i++) {
        const given = mixture(canvas, i);
        given.logWeights.forEach((logWeight, k) => {
          for (let c = 0; c < channels; c++)
            result[i * channels + c] +=
              .5 * Math.exp(logWeight) * clippedMean(given.mean(c, k), given.logScale(c, k));
        });
      }
      return result;
    }

    function logProb(canvas, x) {
      let total = 0;
      for (let i = 0; i < canvas.length / count; i++) {
        const given = mixture(canvas, i), levels = [];
        for (let c = 0; c < channels; c++) levels.push(Math.round(255 * x[i * channels + c]));
        const values = levels.map(level => 2 * HALF * level - 1);
        total += logSumExp(given.logWeights.map((logWeight, k) => levels.reduce((sum, level, c) =>
          sum + bin(center(given, c, k, values), given.logScale(c, k), level), logWeight)));
      }
      return total;
    }

    return {mean, logProb};
  }

  return {bernoulli, discretized_logistic};
})();
