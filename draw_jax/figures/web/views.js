'use strict';
/* The three parts of the page: draw, generate, interpolate. */

/* What a job has given so far: for each glimpse the message of the worker. */
class Trace {
  constructor() {
    this.glimpses = [];
    this.done = false;
  }

  get length() {
    return this.glimpses.length;
  }

  /* Nats of an example after each glimpse: the reconstruction's, and the KL of the glimpse. */
  kl(example) {
    return this.glimpses.map(glimpse => glimpse.kl[example]);
  }

  bound(t, example) {
    const sum = this.kl(example).slice(0, t + 1).reduce((a, b) => a + b, 0);
    return {kl: sum, reconstruction: this.glimpses[t].reconstruction[example]};
  }
}

/* The worker, and who waits for it. */
class Network {
  constructor(model, source) {
    this.waiting = {};  // by channel
    this.count = 0;
    const address = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
    this.worker = new Worker(address);
    this.worker.onmessage = ({data}) => {
      const job = Object.values(this.waiting).find(other => other.id === data.id);
      if (!job) return;
      job.trace.glimpses.push(data);
      job.trace.done = data.last;
      job.heard(job.trace);
    };
    this.worker.postMessage(model);
  }

  /* Starts a job that takes the place of the channel's last; `heard(trace)` at each glimpse. */
  run(channel, job, heard) {
    const id = ++this.count;
    this.waiting[channel] = {id, heard, trace: new Trace()};
    this.worker.postMessage({...job, channel, id});
  }
}

/* What all parts have: the shown trace, and how it is shown and played. */
class View {
  constructor(app, section) {
    Object.assign(this, {app, model: app.model, section, trace: new Trace()});
    const controls = section.querySelector('.controls');
    this.playback = new Playback(controls, this.model.glimpses, t => this.show(t));
    this.playback.isThere = t => t < this.trace.length;
  }

  find(selector) {
    return this.section.querySelector(selector);
  }

  get latents() {
    return this.model.glimpses * this.model.latent;
  }

  /* Takes a trace as soon as it reaches the glimpse that is shown. */
  take(trace) {
    if (trace.length <= this.playback.t) return;
    const changed = trace !== this.trace || trace.length === this.playback.t + 1 || trace.done;
    this.trace = trace;
    if (changed) this.playback.refresh();
  }

  /* Paints example i of glimpse t, and a window. */
  paint(canvas, t, i, num) {
    const {height, width} = this.model, {canvas: all, write} = this.trace.glimpses[t];
    const size = all.length / num, one = all.subarray(i * size, (i + 1) * size);
    Drawing.paint(canvas, this.app.engine.mean(one), height, width);
    this.mark(canvas, write, i, this.model.writeSize, Drawing.WRITE);
  }

  mark(canvas, windows, i, size, color) {
    if (!windows || !this.playback.windows) return;
    const {height, width} = this.model;
    Drawing.mark(canvas, windows.subarray(5 * i, 5 * i + 5), size, height, width, color);
  }
}

/* One draws, and the network draws it again. */
class DrawView extends View {
  constructor(app, section) {
    super(app, section);
    const {model} = this;
    this.pad = new Pad(this.find('.yours'), model, 420, 'Your drawing', end => this.changed(end));
    this.output = Drawing.makeCanvas(this.find('.its'), model.height, model.width, 420,
      'What the network draws');
    this.bars = Drawing.makeCanvas(this.find('.kl'), 1, 12, 900, 'KL of each glimpse');
    this.bars.addEventListener('click', event =>
      this.playback.seek(Math.floor(event.offsetX / this.bars.offsetWidth * model.glimpses)));
    this.renew();
    this.find('.undo').addEventListener('click', () => this.pad.undo());
    this.find('.clear').addEventListener('click', () => this.pad.clear());
    this.find('.again').addEventListener('click', () => {
      this.renew();
      this.changed(true);
    });
  }

  /* Other noise of the latents. */
  renew() {
    this.seed = (this.seed || 0) + 1;
    this.noise = Engine.normal(this.seed, this.model.glimpses, 1, this.model.latent);
  }

  /* Only a whole stroke starts the playing anew, and ends a pass that is under way. */
  changed(ended) {
    this.pad.paint();
    if (ended) {
      this.playback.restart();
      this.busy = false;
    }
    this.stale = true;
    this.look();
  }

  look() {
    if (this.busy || !this.stale) return;
    this.busy = true;
    this.stale = false;
    this.pixels = this.pad.pixels;
    this.app.network.run('draw',
      {kind: 'look', num: 1, images: this.pixels, inputs: this.noise}, trace => {
        this.take(trace);
        if (!trace.done) return;
        this.busy = false;
        this.look();
      });
  }

  show(t) {
    const {trace, model} = this;
    if (t >= trace.length) return;
    this.pad.paint();
    this.mark(this.pad.canvas, trace.glimpses[t].read, 0, model.readSize, Drawing.READ);
    this.paint(this.output, t, 0, 1);
    const kl = trace.kl(0);
    this.highest = trace.done ? Math.max(...kl) : Math.max(this.highest || 0, ...kl);
    Drawing.bars(this.bars, kl, model.glimpses, t, this.highest);
    this.showBound(t);
  }

  showBound(t) {
    const {kl, reconstruction} = this.trace.bound(t, 0), bound = kl + reconstruction;
    const {meanBound: mean} = this.model;
    const end = 2.5 * (mean || this.trace.bound(0, 0).reconstruction);
    const length = value => `${100 * Math.min(value / end, 1)}%`;
    this.find('.bound').textContent = bound.toFixed(1);
    this.find('.is-kl').style.width = length(kl);
    this.find('.is-reconstruction').style.width = length(Math.min(reconstruction, end - kl));
    this.find('.terms').textContent =
      `${kl.toFixed(1)} told by the latents + ${reconstruction.toFixed(1)} for the pixels`;
    this.find('.tick').style.left = mean ? length(mean) : '-9px';
    if (mean) this.find('.verdict').textContent = verdict(bound - mean, t, this.model.glimpses);
  }
}

function verdict(more, t, glimpses) {
  if (t < glimpses - 1) return `After ${t + 1} of ${glimpses} glimpses.`;
  if (Math.abs(more) < .05) return 'Just as surprising as the mean.';
  return `${Math.abs(more).toFixed(1)} nats ${more > 0 ? 'more' : 'less'} surprising than the mean.`;
}

/* Images from the prior. */
class GenerateView extends View {
  static NUM = 16;

  constructor(app, section) {
    super(app, section);
    const {height, width} = this.model;
    this.canvases = Array.from({length: GenerateView.NUM}, (_, i) =>
      Drawing.makeCanvas(this.find('.samples'), height, width, 150, `Sample ${i + 1}`));
    this.seed = this.find('.seed');
    this.temperature = this.find('.temperature');
    this.seed.addEventListener('change', () => this.start(true));
    this.temperature.addEventListener('input', () => this.start(false));
    this.find('.again').addEventListener('click', () => {
      this.seed.value = Number(this.seed.value) + 1;
      this.start(true);
    });
  }

  /* Noise [T, B, Z] of the seed. */
  get noise() {
    const {glimpses, latent} = this.model;
    return Engine.normal(Math.floor(this.seed.value) || 0, glimpses, GenerateView.NUM, latent);
  }

  start(anew, noise = this.noise) {
    const temperature = Number(this.temperature.value);
    this.find('.temperature-value').textContent = temperature.toFixed(2);
    if (anew) this.playback.restart();
    const inputs = noise.map(value => temperature * value);
    this.app.network.run('generate', {kind: 'imagine', num: GenerateView.NUM, inputs},
      trace => this.take(trace));
  }

  opened() {
    if (!this.trace.length) this.start(true);
  }

  show(t) {
    if (t >= this.trace.length) return;
    this.canvases.forEach((canvas, i) => this.paint(canvas, t, i, GenerateView.NUM));
  }
}

/* Two images and the way between their latents. */
class InterpolateView extends View {
  static BETWEEN = 9;

  constructor(app, section) {
    super(app, section);
    const {model} = this, {glimpses, latent, height, width} = model;
    // The same for both: latents that say nothing of an image stay what they are.
    const noise = Engine.normal(0, glimpses, 1, latent);
    this.noise = new Float64Array(2 * noise.length);
    for (let t = 0; t < glimpses; t++)
      for (const end of [0, 1])
        this.noise.set(noise.subarray(t * latent, (t + 1) * latent), (2 * t + end) * latent);
    this.pads = ['first', 'last'].map((name, i) => new Pad(this.find(`.${name} figure`), model, 240,
      `Drawing ${i + 1}`, () => this.changed()));
    this.pads.forEach((pad, i) =>
      this.find(i ? '.last' : '.first').querySelector('.clear').addEventListener('click', () => pad.clear()));
    this.output = Drawing.makeCanvas(this.find('.its'), height, width, 420, 'What lies between');
    this.strip = Array.from({length: InterpolateView.BETWEEN}, (_, i) => {
      const button = Drawing.make(this.find('.strip'), 'button');
      button.type = 'button';
      button.title = `${Math.round(100 * i / (InterpolateView.BETWEEN - 1))} % of the way`;
      button.addEventListener('click', () => this.go(i / (InterpolateView.BETWEEN - 1)));
      return Drawing.makeCanvas(button, height, width, 90, button.title);
    });
    this.way = this.find('.way');
    this.way.addEventListener('input', () => this.go(Number(this.way.value)));
    this.playback.playing = false;
    this.playback.t = glimpses - 1;
  }

  opened() {
    if (!this.trace.length) this.changed();
  }

  changed() {
    this.pads.forEach(pad => pad.paint());
    if (!this.section.offsetParent) return;
    this.stale = true;
    this.look();
  }

  look() {
    if (this.busy || !this.stale) return;
    this.busy = true;
    this.stale = false;
    const images = Float64Array.from(this.pads.flatMap(pad => Array.from(pad.pixels)));
    this.app.network.run('ends', {kind: 'look', num: 2, images, inputs: this.noise}, trace => {
      if (!trace.done) return;
      this.busy = false;
      this.ends = trace.glimpses.map(glimpse => glimpse.latents);
      this.go(Number(this.way.value));
      const places = this.strip.map((_, i) => i / (this.strip.length - 1));
      this.decode('strip', places, strip => this.showStrip(strip));
      this.look();
    });
  }

  /* Decodes the latents at some places on the way, from 0 to 1. */
  decode(channel, places, heard) {
    const {latent, glimpses} = this.model, num = places.length;
    const inputs = new Float64Array(num * this.latents);
    for (let t = 0, k = 0; t < glimpses; t++)
      for (const place of places)
        for (let z = 0; z < latent; z++, k++)
          inputs[k] = (1 - place) * this.ends[t][z] + place * this.ends[t][latent + z];
    this.app.network.run(channel, {kind: 'decode', num, inputs}, heard);
  }

  go(place) {
    this.way.value = place;
    if (this.ends) this.decode('way', [place], trace => this.take(trace));
  }

  showStrip(trace) {
    if (!trace.done) return;
    const {height, width} = this.model, {canvas} = trace.glimpses[trace.length - 1];
    const size = canvas.length / this.strip.length;
    this.strip.forEach((shown, i) => Drawing.paint(shown,
      this.app.engine.mean(canvas.subarray(i * size, (i + 1) * size)), height, width));
  }

  show(t) {
    if (t < this.trace.length) this.paint(this.output, t, 0, 1);
  }
}
