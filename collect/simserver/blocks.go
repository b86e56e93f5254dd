package simserver

// A blockPool is the KV cache of one engine: blocks with reference counts,
// a free list in the order of eviction, and an index of the blocks whose
// content is known. A block that is free keeps its content until it is
// handed out again. Block 0 is never handed out (vLLM's null block).
type blockPool struct {
	blocks []block
	free   int              // length of the free list, whose ends are blocks[0].next and .prev
	index  map[uint64]int32 // content hash -> block
}

type block struct {
	hash       uint64 // of everything up to its last token; 0 means not known
	refs       int32
	prev, next int32 // in the free list; 0 is its sentinel
}

// newBlockPool makes a pool of n usable blocks.
func newBlockPool(n int) *blockPool {
	p := &blockPool{blocks: make([]block, n+1), index: map[uint64]int32{}}
	for i := range n {
		p.pushFree(int32(i + 1))
	}
	return p
}

func (p *blockPool) pushFree(i int32) {
	last := p.blocks[0].prev
	p.blocks[i].prev, p.blocks[i].next = last, 0
	p.blocks[last].next, p.blocks[0].prev = i, i
	p.free++
}

func (p *blockPool) unlink(i int32) {
	b := &p.blocks[i]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

// used is the number of blocks that somebody holds.
func (p *blockPool) used() int { return len(p.blocks) - 1 - p.free }

// cached returns how many leading hashes are in the cache, at most limit.
func (p *blockPool) cached(hashes []uint64, limit int) int {
	n := 0
	for n < min(limit, len(hashes)) && p.index[hashes[n]] != 0 {
		n++
	}
	return n
}

// share appends the blocks of hashes, which cached has found, to held.
func (p *blockPool) share(held []int32, hashes []uint64) []int32 {
	for _, h := range hashes {
		i := p.index[h]
		if p.blocks[i].refs == 0 {
			p.unlink(i)
		}
		p.blocks[i].refs++
		held = append(held, i)
	}
	return held
}

// grow appends free blocks to held until there are n. It takes none and
// returns false if there are too few.
func (p *blockPool) grow(held []int32, n int) ([]int32, bool) {
	if n-len(held) > p.free {
		return held, false
	}
	for len(held) < n {
		i := p.blocks[0].next
		p.unlink(i)
		b := &p.blocks[i]
		if b.hash != 0 && p.index[b.hash] == i {
			delete(p.index, b.hash)
		}
		b.hash, b.refs = 0, 1
		held = append(held, i)
	}
	return held, true
}

// know records the content of block i.
func (p *blockPool) know(i int32, hash uint64) {
	if b := &p.blocks[i]; b.hash == 0 {
		b.hash = hash
		if p.index[hash] == 0 {
			p.index[hash] = i
		}
	}
}

// release gives held blocks back, the last first, so that the beginning of a
// prompt stays cached longest.
func (p *blockPool) release(held []int32) {
	for k := len(held) - 1; k >= 0; k-- {
		b := &p.blocks[held[k]]
		if b.refs--; b.refs == 0 {
			p.pushFree(held[k])
		}
	}
}
