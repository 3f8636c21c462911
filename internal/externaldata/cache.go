package externaldata

import (
	"container/list"
	"sync"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
)

// maxCache bounds the bytes that all cached answers hold together.
const maxCache = 32 << 20

// cacheOverhead is about what an entry takes beside its texts.
const cacheOverhead = 256

// cache keeps answers of providers until they expire. The oldest make room. An
// endpoint is replaced when its Provider changes, so its answers are not found any
// more. A nil cache is empty.
type cache struct {
	mu    sync.Mutex
	at    map[cacheKey]*list.Element
	order *list.List // of *cached, the oldest first
	bytes int
}

type cacheKey struct {
	endpoint *endpoint
	key      string
}

type cached struct {
	cacheKey
	answer  engine.Answer
	expires time.Time
	bytes   int
}

func newCache() *cache {
	return &cache{at: map[cacheKey]*list.Element{}, order: list.New()}
}

func (c *cache) get(e *endpoint, key string, now time.Time) (engine.Answer, bool) {
	if c == nil {
		return engine.Answer{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.at[cacheKey{e, key}]
	if !ok {
		return engine.Answer{}, false
	}
	entry := at.Value.(*cached)
	if !now.Before(entry.expires) {
		c.drop(at)
		return engine.Answer{}, false
	}
	return entry.answer, true
}

func (c *cache) put(e *endpoint, key string, answer engine.Answer, expires time.Time) {
	bytes := cacheOverhead + len(key) + len(answer.Value)
	if answer.Err != nil {
		bytes += len(answer.Err.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := cacheKey{e, key}
	if old, ok := c.at[at]; ok {
		c.drop(old)
	}
	c.at[at] = c.order.PushBack(&cached{at, answer, expires, bytes})
	c.bytes += bytes
	for c.bytes > maxCache {
		c.drop(c.order.Front())
	}
}

func (c *cache) drop(at *list.Element) {
	entry := c.order.Remove(at).(*cached)
	delete(c.at, entry.cacheKey)
	c.bytes -= entry.bytes
}
