# Jobs as an application has them, for Sidekiq 6 and later: sidekiq -r ./jobs.rb -q default
require "sidekiq"

# Takes as long as it is told; the first argument says for whom, as Sojourn's setting `tenant = "json:args[0].tenant"` reads it.
class Work
  include Sidekiq::Worker

  def perform(_for_whom, seconds)
    sleep seconds
  end
end

# Fails until it is FIXED, and is tried again later, as Sidekiq does by default; pushed with "retry": 0 it is dead at once.
class Broken
  include Sidekiq::Worker

  def perform(_for_whom)
    raise "broken" unless ENV["FIXED"]
  end
end
