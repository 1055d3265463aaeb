// An application that uses River: a worker stuck on one job, and jobs in every state. It prints what it did, as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type order struct {
	What   string `json:"what"`
	Tenant string `json:"tenant"`
}

func (order) Kind() string { return "order" }

type worker struct {
	river.WorkerDefaults[order]
	stuck chan float64
	ended chan string
}

func (w *worker) NextRetry(*river.Job[order]) time.Time   { return time.Now().Add(time.Hour) }
func (w *worker) Timeout(*river.Job[order]) time.Duration { return -1 }

func (w *worker) Work(ctx context.Context, job *river.Job[order]) error {
	switch job.Args.What {
	case "fail":
		w.ended <- job.Args.What
		return errors.New("as it is to")
	case "stuck":
		w.stuck <- now()
		<-ctx.Done()
		return ctx.Err()
	}
	w.ended <- job.Args.What
	return nil
}

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Args[1])
	check(err)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	work := &worker{stuck: make(chan float64, 1), ended: make(chan string, 9)}
	workers := river.NewWorkers()
	river.AddWorker(workers, work)
	client, err := river.NewClient(driver, &river.Config{
		Queues:  map[string]river.QueueConfig{"orders": {MaxWorkers: 1}},
		Workers: workers, FetchPollInterval: 100 * time.Millisecond,
	})
	check(err)
	insert := func(what string, tenant string, options river.InsertOpts) [2]float64 {
		options.Queue = "orders"
		before := now()
		_, err := client.Insert(ctx, order{what, tenant}, &options)
		check(err)
		return [2]float64{before, now()}
	}
	insert("fail", "b", river.InsertOpts{})
	insert("fail", "b", river.InsertOpts{MaxAttempts: 1})
	insert("done", "a", river.InsertOpts{})
	check(client.Start(ctx))
	for range 3 {
		<-work.ended
	}
	stuck := insert("stuck", "a", river.InsertOpts{})
	began := <-work.stuck
	first := insert("wait", "a", river.InsertOpts{})
	insert("wait", "a", river.InsertOpts{})
	insert("wait", "b", river.InsertOpts{})
	for range 2 {
		insert("wait", "a", river.InsertOpts{ScheduledAt: time.Now().Add(time.Hour)})
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"stuck": stuck, "began": began, "first": first}))
	_, _ = io.ReadAll(os.Stdin)
}
