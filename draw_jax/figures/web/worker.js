'use strict';
/* The network, away from the page. The first message is the model; every other one is a job

    {id, channel, kind, num, images, inputs}

whose `inputs` [T, B, Z] are noise, or latents for the kind 'decode'. It is answered by a message
for each glimpse, and `last` in the last. A new job of a channel ends the one before.
*/
let network = null;
const newest = {};  // the job of each channel

onmessage = ({data}) => {
  if (!network) {
    const bytes = Uint8Array.from(atob(data.weights), c => c.charCodeAt(0));
    network = new Engine.Network(data, Engine.unpack(bytes, data.tensors, data.dtype));
    return;
  }
  newest[data.channel] = data.id;
  work(data);
};

async function work({id, channel, kind, num, images, inputs}) {
  const step = {
    look: (state, noise) => network.look(state, noise),
    imagine: (state, noise) => network.imagine(state, noise),
    decode: (state, latents) => network.draw(state, latents),
  }[kind];
  const state = network.start(num, images), size = num * network.latent;
  for (let t = 0; t * size < inputs.length; t++) {
    await messagesRead();
    if (newest[channel] !== id) return;
    const seen = step(state, inputs.subarray(t * size, (t + 1) * size));
    const canvas = Float32Array.from(state.canvas);
    const reconstruction = images && network.reconstruction(state);
    postMessage({...seen, id, t, canvas, reconstruction, last: (t + 1) * size === inputs.length},
      [canvas.buffer]);
  }
}

/* Lets the messages that wait have their turn: timers would take milliseconds. */
function messagesRead() {
  return new Promise(done => {
    const {port1, port2} = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });
}
