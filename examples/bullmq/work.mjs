// Works on queues: node work.mjs CONCURRENCY QUEUE…; a job "broken" fails until it is FIXED, any other takes data.seconds.
import { MetricsTime, Worker } from "bullmq";

const [concurrency, ...names] = process.argv.slice(2);
const workers = names.map(
  (name) =>
    new Worker(
      name,
      async (job) => {
        if (job.name === "broken" && !process.env.FIXED) throw new Error("broken");
        await new Promise((done) => setTimeout(done, (job.data.seconds ?? 0) * 1000));
      },
      {
        connection: { url: process.env.REDIS_URL },
        concurrency: Number(concurrency),
        metrics: { maxDataPoints: MetricsTime.ONE_HOUR }, // then Sojourn knows how many jobs were completed
      },
    ),
);
for (const worker of workers) worker.on("error", (error) => console.error(error.message));
