# Pushes jobs: each line of the input is what Sidekiq::Client.push takes, as JSON; prints when each was pushed.
require "json"
require "sidekiq"

$stdout.sync = true
$stdin.each_line do |line|
  before = Time.now.to_f
  jid = Sidekiq::Client.push(JSON.parse(line))
  puts JSON.generate("jid" => jid, "before" => before, "after" => Time.now.to_f)
end
