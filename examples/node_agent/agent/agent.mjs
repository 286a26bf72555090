// A command-line agent: it reads a request from stdin, lets a model open contacts, and prints the number that the model names.
//
//   echo "ring anna" | OPENAI_BASE_URL=… OPENAI_API_KEY=… node agent.mjs
//
// It needs nothing but Node, and it knows nothing of the toolkit that trains its model.

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";

const TURNS = 3;

const url = new URL(`${process.env.OPENAI_BASE_URL}/chat/completions`);
// It starts in a third of the time that `fetch` needs.
const { request } = await import(url.protocol === "https:" ? "node:https" : "node:http");

async function ask(messages) {
  const headers = { "content-type": "application/json", authorization: `Bearer ${process.env.OPENAI_API_KEY}` };
  const call = request(url, { method: "POST", headers });
  call.end(JSON.stringify({ model: "gpt-4o-mini", messages }));
  const [response] = await once(call, "response");
  const body = JSON.parse(await text(response));
  if (response.statusCode !== 200) throw new Error(body.error.message);
  return body.choices[0].message.content;
}

async function contact(name) {
  if (!/^[a-z]+$/.test(name)) return "nobody";
  return (await readFile(`contacts/${name}.txt`, "utf8").catch(() => "nobody")).trim();
}

const messages = [{ role: "user", content: (await text(process.stdin)).trim() }];
for (let turn = 0; turn < TURNS; turn++) {
  const content = await ask(messages);
  const [, name] = content.match(/^open (\w+)$/) ?? [];
  if (name === undefined) {
    console.log(content);
    process.exit(0);
  }
  messages.push({ role: "assistant", content }, { role: "user", content: await contact(name) });
}
console.log("no answer");
