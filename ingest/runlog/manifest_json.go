package runlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of a manifest; the format needs 5.
const maxJSONDepth = 32

// encodeManifest returns m as the bytes of run.json: sorted keys, two-space
// indent, a final newline, nothing escaped that JSON does not demand.
func encodeManifest(m *Manifest) ([]byte, error) {
	c := *m
	c.StartedAt = m.StartedAt.UTC()
	c.Plan.ContextsTokens = notNil(m.Plan.ContextsTokens)
	c.Plan.Concurrency = notNil(m.Plan.Concurrency)
	c.Plan.PrefillContextsTokens = notNil(m.Plan.PrefillContextsTokens)
	c.Plan.Order = notNil(m.Plan.Order)
	c.Cells = notNil(m.Cells)
	if err := c.Check(); err != nil {
		return nil, err
	}
	inOrder, err := json.Marshal(&c)
	if err != nil {
		return nil, err
	}
	tree, damage := parseJSON(inOrder) // encoding/json sorts the keys of maps, not those of structs
	if damage != nil {
		return nil, damage
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(tree); err != nil {
		return nil, err
	}
	if out.Len() > maxManifestBytes {
		return nil, damagef("got %d bytes, want %d at most", out.Len(), maxManifestBytes).in(ManifestFile)
	}
	return out.Bytes(), nil
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// decodeManifest decodes and checks the bytes of run.json.
func decodeManifest(data []byte) (*Manifest, *damage) {
	tree, d := parseJSON(data)
	if d != nil {
		return nil, d
	}
	object, ok := tree.(map[string]any)
	if !ok {
		return nil, damagef("got %s, want an object", jsonKind(tree))
	}
	switch version, ok := object["format"]; {
	case !ok:
		return nil, damagef("not a run log: no key \"format\"")
	case version != Format: // before anything else: another version may have other keys
		return nil, damagef("format: got %s, want %q", jsonValue(version), Format)
	}
	if d := fit(tree, reflect.TypeFor[Manifest](), ""); d != nil {
		return nil, d
	}
	known, err := json.Marshal(tree)
	if err != nil {
		return nil, damagef("%v", err)
	}
	m := new(Manifest)
	if err := json.Unmarshal(known, m); err != nil {
		return nil, damagef("%v", err)
	}
	return m, m.check()
}

// parseJSON parses exactly one JSON value, with numbers as json.Number. Unlike
// encoding/json it refuses a key that stands twice and bytes that are not
// UTF-8, which a second reader would read differently.
func parseJSON(data []byte) (any, *damage) {
	if !utf8.Valid(data) {
		return nil, damagef("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	tree, err := parseValue(dec, 0)
	if err == nil {
		if _, err = dec.Token(); err == nil {
			err = errors.New("more than one value")
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, damagef("at byte %d: %v", dec.InputOffset(), err)
	}
	return tree, nil
}

// parseValue parses the next value. It returns io.ErrUnexpectedEOF, not
// io.EOF, where there is none.
func parseValue(dec *json.Decoder, depth int) (any, error) {
	token, err := dec.Token()
	if err == io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	delim, ok := token.(json.Delim)
	if err != nil || !ok {
		return token, err
	}
	if depth == maxJSONDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
	}
	list, object := []any{}, map[string]any{}
	for dec.More() {
		if delim == '[' {
			value, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
			continue
		}
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key := token.(string) // the decoder lets nothing else through
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("key %q stands twice", clip(key))
		}
		if object[key], err = parseValue(dec, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err == io.EOF { // the closing delimiter
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	if delim == '{' {
		return object, nil
	}
	return list, nil
}

// fit holds a parsed value against the Go type that it is for, so that
// errors name their place. From objects it removes keys that the type does
// not have and optional ones that are null: both mean nothing.
func fit(value any, t reflect.Type, at string) *damage {
	wrong := func(want string) *damage {
		return damagef("%s: got %s, want %s", at, jsonValue(value), want)
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		s, ok := value.(string)
		if _, err := time.Parse(time.RFC3339, s); !ok || err != nil {
			return wrong("a time as in RFC 3339")
		}
		return nil
	case t.Kind() == reflect.Pointer:
		return fit(value, t.Elem(), at)
	}
	switch t.Kind() {
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		return fitStruct(object, t, at)
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			return wrong("an object")
		}
		for key, v := range object {
			if d := fit(v, t.Elem(), fmt.Sprintf("%s[%q]", at, clip(key))); d != nil {
				return d
			}
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return wrong("an array")
		}
		for i, v := range list {
			if d := fit(v, t.Elem(), fmt.Sprintf("%s[%d]", at, i)); d != nil {
				return d
			}
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			return wrong("a string")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong("true or false")
		}
	case reflect.Float64:
		n, ok := value.(json.Number)
		if _, err := strconv.ParseFloat(string(n), 64); !ok || err != nil {
			return wrong("a number")
		}
	default:
		n, ok := value.(json.Number)
		if _, err := strconv.ParseInt(string(n), 10, t.Bits()); !ok || err != nil {
			return wrong(fmt.Sprintf("an integer of %d bits", t.Bits()))
		}
	}
	return nil
}

// fitStruct is fit for an object that is a struct.
func fitStruct(object map[string]any, t reflect.Type, at string) *damage {
	type want struct {
		typ      reflect.Type
		optional bool
	}
	fields := map[string]want{}
	var keys []string // in the order of the type, so that of several errors it is always the same one
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue // its fields are visible too
		}
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[key] = want{f.Type, options == "omitempty"}
		keys = append(keys, key)
	}
	for key := range object {
		if _, known := fields[key]; !known {
			delete(object, key)
		}
	}
	for _, key := range keys {
		place := strings.TrimPrefix(at+"."+key, ".")
		value, ok := object[key]
		if value == nil && fields[key].optional {
			delete(object, key)
			continue
		}
		if !ok {
			return damagef("%s: missing", place)
		}
		if d := fit(value, fields[key].typ, place); d != nil {
			return d
		}
	}
	return nil
}

// jsonKind names the kind of a parsed value.
func jsonKind(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	default:
		return "true or false"
	}
}

// jsonValue shows a parsed value in an error message.
func jsonValue(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(clip(v))
	case json.Number:
		return clip(string(v))
	case bool:
		return strconv.FormatBool(v)
	default:
		return jsonKind(value)
	}
}
