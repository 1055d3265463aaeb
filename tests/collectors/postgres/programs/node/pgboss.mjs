// An application that uses pg-boss: pgboss.mjs URL 9|10.
import { run, work } from "./workload.mjs";

const version = Number(process.argv[3]);
const { default: PgBoss } = await import(version === 9 ? "pg-boss-9" : "pg-boss");
const boss = new PgBoss(process.argv[2]);
boss.on("error", (error) => console.error(error));
await boss.start();
if (version > 9) {
  await boss.createQueue("orders");
}
await run(
  (what, tenant, { once, later }) =>
    boss.send("orders", { what, tenant }, {
      ...(once ? { retryLimit: 0 } : { retryLimit: 5, retryDelay: 3600 }),
      expireInHours: 2,
      startAfter: later ? 3600 : undefined,
    }),
  (told) =>
    version === 9
      ? boss.work("orders", { newJobCheckInterval: 100 }, ({ data }) => work(data.what, told))
      : boss.work("orders", { pollingIntervalSeconds: 0.5 }, ([{ data }]) => work(data.what, told)),
);
