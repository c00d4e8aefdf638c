'use strict';
/* Plays images that were drawn before. */
const data = JSON.parse(document.getElementById('data').textContent);
const examples = [];
const steps = Math.max(1, ...data.sections.map(section => section.steps));
const playback = new Playback(document.getElementById('controls'), steps, show, true);

function load(source) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = failed;
    image.src = source;
  });
}

async function build() {
  document.title = document.querySelector('h1').textContent = data.title;
  const loading = data.sections.map(section => Promise.all([
    Promise.all(section.frames.map(load)), Promise.all((section.targets || []).map(load))]));
  for (const [k, section] of data.sections.entries()) {
    const [frames, targets] = await loading[k];
    const main = document.querySelector('main');
    Drawing.make(main, 'h2', '', section.title);
    const list = Drawing.make(main, 'div', 'examples');
    for (let i = 0; i < section.frames.length; i++)
      examples.push(makeExample(section, i, frames[i], targets[i], Drawing.make(list, 'figure')));
  }
  playback.refresh();
  document.body.dataset.ready = 'true';
}

function makeExample(section, i, frames, target, figure) {
  const {height, width} = section, zoom = Math.max(1, Math.round(112 / Math.max(height, width)));
  const pair = Drawing.make(figure, 'div', 'pair'), example = {section, i, frames, target};
  const canvas = label => {
    const made = Drawing.makeCanvas(pair, height, width, zoom * Math.max(height, width), label);
    made.style.width = `${zoom * width}px`;
    made.style.height = `${zoom * height}px`;
    return made;
  };
  if (target) example.targetCanvas = canvas('What is read');
  example.canvas = canvas('What is drawn');
  if (section.kl) {
    const wide = target ? 2 * zoom * width + 4 : zoom * width;
    example.klCanvas = Drawing.makeCanvas(figure, 36, wide, wide, 'KL of each glimpse', 'kl');
    example.klCanvas.style.width = `${wide}px`;
    example.klCanvas.addEventListener('click', event =>
      playback.seek(Math.floor(event.offsetX / wide * section.steps)));
    example.caption = Drawing.make(figure, 'figcaption');
  }
  return example;
}

function mark(canvas, {size, windows}, {i, section: {height, width}}, t, color) {
  if (playback.windows) Drawing.mark(canvas, windows[i][t], size, height, width, color);
}

function show(step) {
  for (const example of examples) {
    const {section, i, canvas, frames} = example, t = Math.min(step, section.steps - 1);
    const {height, width, kl} = section;
    Drawing.enlarge(canvas, frames, t * height, height, width);
    if (section.write) mark(canvas, section.write, example, t, Drawing.WRITE);
    if (example.target) {
      Drawing.enlarge(example.targetCanvas, example.target, 0, height, width);
      if (section.read) mark(example.targetCanvas, section.read, example, t, Drawing.READ);
    }
    if (!kl) continue;
    Drawing.bars(example.klCanvas, kl[i], section.steps, t, section.klMax);
    const sum = list => list.reduce((a, b) => a + b, 0).toFixed(1);
    example.caption.textContent = `KL ${sum(kl[i].slice(0, t + 1))} of ${sum(kl[i])} nats`;
  }
}

document.addEventListener('keydown', event => playback.onKey(event));
build();
