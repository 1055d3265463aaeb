# Sends dead jobs back to their queues, oldest first: ruby redrive.rb [CLASS]
require "json"
require "sidekiq/api"

Sidekiq::DeadSet.new.each do |job|
  next if ARGV[0] && job.klass != ARGV[0]

  puts JSON.generate("jid" => job.jid, "queue" => job.queue, "class" => job.klass) if job.retry
end
