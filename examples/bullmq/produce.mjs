// Adds jobs: each line of the input is {"queue", "name", "data", "opts"}, {"flow": …} or {"pause": queue}; prints when each was added.
import { createInterface } from "node:readline";
import { FlowProducer, Queue } from "bullmq";

const connection = { url: process.env.REDIS_URL };
const queues = new Map();
const queue = (name) => queues.get(name) ?? queues.set(name, new Queue(name, { connection })).get(name);
let flows;

for await (const line of createInterface({ input: process.stdin })) {
  const given = JSON.parse(line);
  const before = Date.now() / 1000;
  let id = null;
  if (given.flow) {
    flows ??= new FlowProducer({ connection });
    id = (await flows.add(given.flow)).job.id;
  } else if (given.pause) {
    await queue(given.pause).pause();
  } else {
    id = (await queue(given.queue).add(given.name, given.data ?? {}, given.opts ?? {})).id;
  }
  console.log(JSON.stringify({ id, before, after: Date.now() / 1000 }));
}
await Promise.all([...queues.values()].map((each) => each.close()));
await flows?.close();
