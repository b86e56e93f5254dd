// Package prompt makes prompts of an exact number of tokens: a nonce that
// no server has seen, English-like text from its own word lists, and a task
// that asks for a long answer.
//
// A prompt is a pure function of its Spec, of the target and of the counts
// it is told, so that every prompt of a run can be rebuilt from the salt
// and the seed that the run log keeps. The package must not know how tokens
// are counted, and must not talk to a server or take the time.
package prompt
