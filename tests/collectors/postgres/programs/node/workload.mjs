// What the applications here do, whatever the library: a worker stuck on one job, and jobs in every state.
export const now = () => Date.now() / 1000;

/** What a job does when it is worked on; tells `told` of it. */
export async function work(what, told) {
  if (what === "stuck") {
    told(what, now());
    await new Promise(() => {});
  }
  setTimeout(() => told(what, now()), 0);
  if (what === "fail") throw new Error("as it is to");
}

/** Runs the workload: `insert(what, tenant, options)` with `once` (no second attempt) and `later` (in an hour). */
export async function run(insert, start) {
  const waiting = [];
  const ended = [];
  const told = (what, at) => (waiting.length ? waiting.shift()(at) : ended.push(at));
  const next = () => (ended.length ? ended.shift() : new Promise((resolve) => waiting.push(resolve)));
  const timed = async (...job) => {
    const before = now();
    await insert(...job);
    return [before, now()];
  };
  await insert("fail", "b", {});
  await insert("fail", "b", { once: true });
  await insert("done", "a", {});
  await start(told);
  for (let at = 0; at < 3; at++) await next();
  const stuck = await timed("stuck", "a", {});
  const began = await next();
  const first = await timed("wait", "a", {});
  await insert("wait", "a", {});
  await insert("wait", "b", {});
  for (let at = 0; at < 2; at++) await insert("wait", "a", { later: true });
  console.log(JSON.stringify({ stuck, began, first }));
  process.stdin.resume().on("end", () => process.exit(0));
}
