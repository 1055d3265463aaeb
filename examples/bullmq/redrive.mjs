// Sends failed jobs back to their queue: node redrive.mjs QUEUE
import { Queue } from "bullmq";

const queue = new Queue(process.argv[2], { connection: { url: process.env.REDIS_URL } });
const failed = await queue.getFailedCount();
await queue.retryJobs({ state: "failed" });
console.log(JSON.stringify({ queue: process.argv[2], sent: failed }));
await queue.close();
