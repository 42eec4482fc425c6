// The program answers what kube-scheduler's selectors of devices say, for cases on standard input.
//
// Each line is a case in JSON: an expression and devices. Its answer is a line too: the mistake in
// the expression, or for each device the result, the error and the cost. It links the package of the
// release whose Go module it is built in, with the options of kube-scheduler's cache of selectors.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

// Go walks maps in any order, so an answer that depends on it shows in some of the tries only.
const tries = 8

const limit = 20 * time.Second

type testCase struct {
	Expression string       `json:"expression"`
	Devices    []cel.Device `json:"devices"`
}

type answer struct {
	Result bool   `json:"result"`
	Error  string `json:"error,omitempty"`
	Cost   uint64 `json:"cost"`
}

type answers struct {
	CompileError string `json:"compileError,omitempty"`
	// What the compiler panicked with, which ends kube-scheduler's process.
	Panic string `json:"panic,omitempty"`
	// By device the distinct answers.
	Devices [][]answer `json:"devices,omitempty"`
}

func main() {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for number := 1; ; number++ {
		line, err := input.ReadBytes('\n')
		if len(line) > 1 {
			if err := respond(line, output); err != nil {
				output.Flush()
				fmt.Fprintf(os.Stderr, "line %d: %v\n", number, err)
				os.Exit(1)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func respond(line []byte, output io.Writer) error {
	var asked testCase
	if err := json.Unmarshal(line, &asked); err != nil {
		return err
	}
	return json.NewEncoder(output).Encode(answered(asked))
}

func answered(asked testCase) (found answers) {
	defer func() {
		if cause := recover(); cause != nil {
			found = answers{Panic: fmt.Sprint(cause)}
		}
	}()
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true})
	compiled := compiler.CompileCELExpression(asked.Expression, cel.Options{DisableCostEstimation: true})
	if compiled.Error != nil {
		return answers{CompileError: compiled.Error.Detail}
	}
	for _, device := range asked.Devices {
		var distinct []answer
		for range tries {
			given := evaluated(compiled, device)
			known := false
			for _, other := range distinct {
				known = known || other == given
			}
			if !known {
				distinct = append(distinct, given)
			}
		}
		found.Devices = append(found.Devices, distinct)
	}
	return found
}

func evaluated(compiled cel.CompilationResult, device cel.Device) answer {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// An evaluation may change quantities, so each gets its own.
	capacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	for name, value := range device.Capacity {
		capacity[name] = *value.DeepCopy()
	}
	device.Capacity = capacity
	matches, details, err := compiled.DeviceMatches(ctx, device)
	given := answer{Result: matches}
	if err != nil {
		given.Error = err.Error()
	}
	if details != nil && details.ActualCost() != nil {
		given.Cost = *details.ActualCost()
	}
	return given
}
