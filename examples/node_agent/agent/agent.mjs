// A command-line agent: it reads a request from stdin, lets a model open contacts, and prints the number that the model names.
//
//   echo "ring anna" | OPENAI_BASE_URL=… OPENAI_API_KEY=… node agent.mjs
//
// It needs nothing but Node, and it knows nothing of the toolkit that trains its model.

import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";

const TURNS = 3;

async function ask(messages) {
  const response = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${process.env.OPENAI_API_KEY}` },
    body: JSON.stringify({ model: "gpt-4o-mini", messages }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error.message);
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
