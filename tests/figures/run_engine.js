// Runs the engine on cases from stdin, and prints what it gives as JSON.
'use strict';
const read = name => require('fs').readFileSync(name, 'utf8');
const sources = process.argv.slice(2).map(read).join('\n');
const Engine = new Function(`${sources}; return Engine;`)();
const input = JSON.parse(read(0));

function run({network, images, noise, num}) {
  const bytes = Uint8Array.from(Buffer.from(network.weights, 'base64'));
  const engine = new Engine.Network(network, Engine.unpack(bytes, network.tensors, network.dtype));
  const size = num * network.latent, glimpses = noise.length / size;
  const pass = (state, step) => Array.from({length: glimpses}, (_, t) => {
    const seen = step(state, Float64Array.from(noise.slice(t * size, (t + 1) * size)));
    return {...seen, canvas: state.canvas.slice(), mean: engine.mean(state.canvas)};
  });
  const looking = engine.start(num, Float64Array.from(images)), drawing = engine.start(num);
  const looked = pass(looking, (state, e) => engine.look(state, e));
  const drawn = pass(drawing, (state, e) => engine.imagine(state, e));
  const column = (steps, name) => steps[0][name] && steps.flatMap(step => Array.from(step[name]));
  return {
    canvases: column(looked, 'canvas'), means: column(looked, 'mean'), kl: column(looked, 'kl'),
    read: column(looked, 'read'), write: column(looked, 'write'),
    latents: column(looked, 'latents'), reconstruction: engine.reconstruction(looking),
    drawn: column(drawn, 'canvas'), drawn_write: column(drawn, 'write'),
  };
}

const filterbanks = input.filterbanks.map(([center, stride, variance, size, length]) =>
  Array.from(Engine.filterbank(center, stride, variance, size, length)));
const noise = input.noise.map(([seed, glimpses, num, latents, first]) =>
  Array.from(Engine.normal(seed, glimpses, num, latents, first)));
const bytes = Uint8Array.from(Buffer.from(input.halves, 'base64'));
const {halves} = Engine.unpack(bytes, [{name: 'halves', shape: [bytes.length / 2]}], 'float16');
console.log(JSON.stringify({cases: input.cases.map(run), filterbanks, noise, halves: [...halves.data]}));
