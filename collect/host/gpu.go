package host

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"speedmatrix/ingest/runlog"
)

const mebi = 1 << 20

// A reading is what one GPU says about itself now. Missing values are NaN.
type reading struct {
	gpu                                        runlog.GPU
	power, clock, temperature, use, throttling float64
	memoryUsed                                 float64 // bytes
}

func noReading() reading {
	n := math.NaN()
	return reading{power: n, clock: n, temperature: n, use: n, throttling: n, memoryUsed: n}
}

// A gpuTool asks one vendor's program. The two of them are what is there on
// machines that serve; others have no readings.
type gpuTool struct {
	name    string
	facts   [][]string // argument lists to try in turn
	samples [][]string
	parse   func([]byte) []reading
}

const (
	nvidiaFacts   = "index,name,memory.total,driver_version,power.limit"
	nvidiaSamples = "index,power.draw,clocks.sm,temperature.gpu,utilization.gpu,memory.used"
)

func gpuTools() []gpuTool {
	nvidia := func(fields string) []string {
		return []string{"--query-gpu=" + fields, "--format=csv,noheader,nounits"}
	}
	return []gpuTool{
		{
			name:  "nvidia-smi",
			facts: [][]string{nvidia(nvidiaFacts)},
			samples: [][]string{ // the field was renamed; a program refuses names that it does not know
				nvidia(nvidiaSamples + ",clocks_event_reasons.active"),
				nvidia(nvidiaSamples + ",clocks_throttle_reasons.active"),
				nvidia(nvidiaSamples),
			},
		},
		{
			name:    "rocm-smi",
			facts:   [][]string{{"--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--showdriverversion", "--json"}},
			samples: [][]string{{"--showpower", "--showclocks", "--showtemp", "--showuse", "--showmeminfo", "vram", "--json"}},
			parse:   parseROCm,
		},
	}
}

// ask runs the tool with the first argument list that it accepts, and
// returns also that list's position.
func (t gpuTool) ask(ctx context.Context, run Runner, lists [][]string) ([]reading, int) {
	for i, args := range lists {
		out, err := run(ctx, t.name, args...)
		if err != nil {
			continue
		}
		parse := t.parse
		if parse == nil {
			fields := strings.Split(strings.TrimPrefix(args[0], "--query-gpu="), ",")
			parse = func(b []byte) []reading { return parseNVIDIA(fields, b) }
		}
		if got := parse(out); len(got) > 0 {
			return got, i
		}
	}
	return nil, 0
}

// parseNVIDIA reads the CSV of nvidia-smi for the given fields, units left
// out. Lines that do not have as many values are skipped.
func parseNVIDIA(fields []string, out []byte) []reading {
	r := csv.NewReader(bytes.NewReader(out))
	r.TrimLeadingSpace = true
	r.FieldsPerRecord = -1
	r.LazyQuotes = true
	lines, err := r.ReadAll()
	if err != nil {
		return nil
	}
	var all []reading
	for _, line := range lines {
		if len(line) != len(fields) {
			continue
		}
		g := noReading()
		for i, field := range fields {
			value := strings.TrimSpace(line[i])
			n := number(value)
			switch field {
			case "name":
				g.gpu.Name = known(value)
			case "memory.total":
				if n > 0 {
					g.gpu.VRAMBytes = int64(n * mebi)
				}
			case "driver_version":
				g.gpu.Driver = known(value)
			case "power.limit":
				if n > 0 {
					g.gpu.PowerLimitW = n
				}
			case "power.draw":
				g.power = n
			case "clocks.sm":
				g.clock = n
			case "temperature.gpu":
				g.temperature = n
			case "utilization.gpu":
				g.use = n / 100
			case "memory.used":
				g.memoryUsed = n * mebi
			case "clocks_event_reasons.active", "clocks_throttle_reasons.active":
				if mask, err := strconv.ParseUint(value, 0, 53); err == nil {
					g.throttling = float64(mask)
				}
			}
		}
		all = append(all, g)
	}
	return all
}

// parseROCm reads the JSON of rocm-smi: an object per card, "card0", whose
// keys changed in spelling over the years.
func parseROCm(out []byte) []reading {
	if i := bytes.IndexByte(out, '{'); i > 0 {
		out = out[i:] // warnings are printed before it
	}
	var cards map[string]map[string]any
	if json.Unmarshal(out, &cards) != nil {
		return nil
	}
	driver := ""
	var names []string
	for name, values := range cards {
		if strings.HasPrefix(name, "card") && number(name[4:]) >= 0 {
			names = append(names, name)
		}
		for key, v := range values {
			if k := strings.ToLower(key); k == "driver version" || k == "driver_version" {
				driver = known(text(v))
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(number(a[4:])) - int(number(b[4:])) })
	var all []reading
	for _, name := range names {
		g := noReading()
		g.gpu.Driver = driver
		var series, device, model string
		edge := math.NaN()
		for key, v := range cards[name] {
			value := text(v)
			n := number(value)
			switch k := strings.ToLower(key); {
			case k == "card series":
				series = known(value)
			case k == "device name":
				device = known(value)
			case k == "card model" && !strings.HasPrefix(value, "0x"):
				model = known(value)
			case k == "vram total memory (b)" && n > 0:
				g.gpu.VRAMBytes = int64(n)
			case k == "vram total used memory (b)":
				g.memoryUsed = n
			case k == "max graphics package power (w)" && n > 0:
				g.gpu.PowerLimitW = n
			case strings.HasSuffix(k, "graphics package power (w)"):
				g.power = n
			case k == "temperature (sensor junction) (c)":
				g.temperature = n
			case k == "temperature (sensor edge) (c)":
				edge = n
			case k == "sclk clock speed:":
				g.clock = number(strings.TrimSuffix(strings.ToLower(strings.Trim(value, "()")), "mhz"))
			case k == "gpu use (%)":
				g.use = n / 100
			}
		}
		if math.IsNaN(g.temperature) {
			g.temperature = edge
		}
		for _, n := range []string{series, device, model} {
			if g.gpu.Name == "" {
				g.gpu.Name = n
			}
		}
		all = append(all, g)
	}
	return all
}

// known returns the value, "" for the ways in which programs say that they
// don't know.
func known(s string) string {
	s = strings.TrimSpace(s)
	switch strings.ToLower(strings.Trim(s, "[]()")) {
	case "", "n/a", "not supported", "not available", "unknown", "unknown error", "none", "null", "insufficient permissions", "requested functionality has been deprecated":
		return ""
	}
	return clean(s, 120)
}

// number parses a value of 0 or more; NaN for everything else.
func number(s string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsInf(n, 0) || n < 0 {
		return math.NaN()
	}
	return n
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// samples returns the values that the reading has, as rows of GPU i.
func (g reading) samples(tUs int64, i int) []runlog.Sample {
	var rows []runlog.Sample
	for _, v := range []struct {
		name  string
		value float64
	}{
		{runlog.MetricPowerW, g.power}, {runlog.MetricSMClockMHz, g.clock}, {runlog.MetricTemperatureC, g.temperature},
		{runlog.MetricThrottleReasons, g.throttling}, {runlog.MetricGPUUtilization, g.use}, {runlog.MetricGPUMemoryUsed, g.memoryUsed},
	} {
		if !math.IsNaN(v.value) {
			rows = append(rows, runlog.Sample{TUs: tUs, Source: runlog.SourceGPU, Name: v.name, Index: int32(i), Value: v.value})
		}
	}
	return rows
}
