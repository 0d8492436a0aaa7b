// Plain JavaScript, as a page would have it: a subscriber, a service and their client on one WebSocket each.

function id() {
  return globalThis.crypto.randomUUID();
}

function connect(url) {
  const socket = new WebSocket(url);
  const waiting = [];
  const heard = [];
  socket.binaryType = "arraybuffer";
  socket.onmessage = ({ data }) => (waiting.length ? waiting.shift()(data) : heard.push(data));
  return new Promise((resolve, reject) => {
    socket.onerror = () => reject(new Error("refused"));
    socket.onopen = () =>
      resolve({
        socket,
        send: (header, payload) => socket.send(`${header}\n${payload}`),
        next: () => (heard.length ? Promise.resolve(heard.shift()) : new Promise((took) => waiting.push(took))),
      });
  });
}

export async function talk(url) {
  const said = [];
  const one = await connect(url);
  const two = await connect(url);
  said.push(await one.next(), await two.next());

  one.send(`subscribe:browser.#:1.0.0:${id()}`, "");
  said.push((await one.next()).split("\n")[1]);
  two.send(`publish:browser.news:1.0.0:${id()}`, "héllo 日本 😀");
  said.push((await two.next()).split("\n")[1]);
  said.push((await one.next()).split("\n")[1]);

  const bytes = new TextEncoder().encode("publish:browser.bytes:1.0.0\n");
  const message = new Uint8Array([...bytes, 0xff, 0xfe, 0x00]);
  two.socket.send(message);
  const binary = new Uint8Array(await one.next());
  said.push([...binary.slice(-3)].join(" "));

  one.send(`subscribe:browser.echo:1.0.0:${id()}`, '{"action":"request"}');
  await one.next();
  two.send(`request:browser.echo:1.0.0:${id()}::5000`, "ask");
  const asked = (await one.next()).split("\n");
  one.send(asked[0].replace("request", "response"), `${asked[1]}ed`);
  said.push((await two.next()).split("\n")[1]);

  two.send("nonsense", "");
  said.push(JSON.parse((await two.next()).split("\n")[1]).error.code);
  const closed = new Promise((resolve) => (one.socket.onclose = ({ code }) => resolve(code)));
  one.socket.close(1000, "done");
  said.push(await closed);
  two.socket.close();
  return said;
}
