// An application that uses graphile-worker.
import pg from "pg";
import { makeWorkerUtils, run as runWorker } from "graphile-worker";
import { run, work } from "./workload.mjs";

const connectionString = process.argv[2];
const utils = await makeWorkerUtils({ connectionString });
await utils.migrate();
await run(
  (what, tenant, { once, later }) =>
    utils.addJob("orders", { what, tenant }, {
      maxAttempts: once ? 1 : 25,
      runAt: later ? new Date(Date.now() + 3_600_000) : undefined,
    }),
  (told) =>
    runWorker({
      connectionString,
      concurrency: 1,
      pollInterval: 100,
      noHandleSignals: true,
      taskList: { orders: ({ what }) => work(what, told) },
    }),
);
// A retry comes after e^attempts seconds: an hour makes it wait for the test.
const client = new pg.Client({ connectionString });
await client.connect();
await client.query(
  "UPDATE graphile_worker._private_jobs SET run_at = now() + interval '1 hour' WHERE attempts = 1 AND max_attempts > 1 AND locked_at IS NULL",
);
await client.end();
