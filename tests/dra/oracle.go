// The program answers what kube-scheduler's allocator of devices decides, for cases on standard input.
//
// Each line is a case in JSON: API objects, and the nodes to allocate for. Its answer is a line too:
// one entry per node, in the same order. It links the allocator and the feature gates of the release
// whose Go module it is built in, so that a case is decided with that release's defaults. Types of the
// allocator that differ between releases are told apart as values, because one file is all of it.
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

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	draapi "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// The allocator walks maps, so an answer that depends on their order shows in some of the tries only.
const tries = 3

// An impossible claim is searched exponentially; kube-scheduler gives up after ten seconds.
const limit = 2 * time.Second

const sharePlaceholder = types.UID("share")

type testCase struct {
	Slices    []*resourcev1.ResourceSlice `json:"slices"`
	Classes   []*resourcev1.DeviceClass   `json:"classes"`
	Allocated []*resourcev1.ResourceClaim `json:"allocated"`
	Claims    []*resourcev1.ResourceClaim `json:"claims"`
	Nodes     []*corev1.Node              `json:"nodes"`
}

// answer has the allocations, or an error, or neither if the claims cannot be allocated on the node.
type answer struct {
	Allocations []resourcev1.AllocationResult `json:"allocations,omitempty"`
	Error       string                        `json:"error,omitempty"`
	// Whether the error makes the node infeasible and does not fail the whole attempt.
	NodeOnly bool `json:"nodeOnly,omitempty"`
	TimedOut bool `json:"timedOut,omitempty"`
	// What the allocator panicked with, which ends kube-scheduler's process.
	Panic string `json:"panic,omitempty"`
}

type classes []*resourcev1.DeviceClass

func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	return c, nil
}

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclass"), name)
}

type decider struct {
	features structured.Features
	cache    *cel.Cache
}

func newDecider() *decider {
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	return &decider{
		features: dynamicresources.AllocatorFeatures(gates),
		cache: cel.NewCache(10, cel.Features{
			EnableConsumableCapacity: gates.EnableDRAConsumableCapacity,
			EnableListTypeAttributes: gates.EnableDRAListTypeAttributes,
		}),
	}
}

// inUse returns what the claims' allocations take, as kube-scheduler counts it.
func inUse(claims []*resourcev1.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:   sets.New[structured.DeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	shared, sharedDevices := sets.New[structured.SharedDeviceID](), sets.New[structured.DeviceID]()
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			device := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(device)
				continue
			}
			shared.Insert(structured.MakeSharedDeviceID(device, result.ShareID))
			sharedDevices.Insert(device)
			if result.ConsumedCapacity != nil {
				consumed := structured.NewDeviceConsumedCapacity(device, result.ConsumedCapacity)
				state.AggregatedCapacity.Insert(consumed)
			}
		}
	}
	switch ids := any(&state.AllocatedSharedDeviceIDs).(type) {
	case *sets.Set[structured.SharedDeviceID]: // up to 1.37
		*ids = shared
	case *sets.Set[structured.DeviceID]:
		*ids = sharedDevices
	}
	return state
}

type constructor[S any] func(
	context.Context, structured.Features, structured.AllocatedState, structured.DeviceClassLister, []S, *cel.Cache,
) (structured.Allocator, error)

// slicesFor returns the slices in the type that the constructor of the release's allocator takes.
func slicesFor[S any](given []*resourcev1.ResourceSlice, _ constructor[S]) ([]S, error) {
	var converted []S
	for _, slice := range given {
		switch taken := any(&converted).(type) {
		case *[]*resourcev1.ResourceSlice: // up to 1.37
			*taken = append(*taken, slice)
		case *[]*draapi.ResourceSlice:
			var internal draapi.ResourceSlice
			if err := draapi.Convert_v1_ResourceSlice_To_api_ResourceSlice(slice, &internal, nil); err != nil {
				return nil, err
			}
			*taken = append(*taken, &internal)
		}
	}
	return converted, nil
}

// decide returns an answer for one node, from an allocator that has seen no other node.
func (d *decider) decide(given *testCase, node *corev1.Node) (decided answer) {
	defer func() {
		if cause := recover(); cause != nil {
			decided = answer{Panic: fmt.Sprint(cause)}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	slices, err := slicesFor(given.Slices, structured.NewAllocator)
	if err != nil {
		return answer{Error: err.Error()}
	}
	allocator, err := structured.NewAllocator(
		ctx, d.features, inUse(given.Allocated), classes(given.Classes), slices, d.cache)
	if err != nil {
		return answer{Error: err.Error()}
	}
	found, err := allocator.Allocate(ctx, node, given.Claims)
	if ctx.Err() != nil {
		return answer{TimedOut: true}
	}
	if err != nil {
		return answer{Error: err.Error(), NodeOnly: errors.Is(err, structured.ErrFailedAllocationOnNode)}
	}
	for _, allocation := range found {
		for i := range allocation.Devices.Results {
			if share := &allocation.Devices.Results[i].ShareID; *share != nil {
				placeholder := sharePlaceholder
				*share = &placeholder
			}
		}
	}
	return answer{Allocations: found}
}

// decideOften returns the distinct answers for one node, as JSON.
func (d *decider) decideOften(given *testCase, node *corev1.Node) ([]json.RawMessage, error) {
	var distinct []json.RawMessage
	seen := sets.New[string]()
	for range tries {
		found := d.decide(given, node)
		text, err := json.Marshal(found)
		if err != nil {
			return nil, err
		}
		if !seen.Has(string(text)) {
			seen.Insert(string(text))
			distinct = append(distinct, text)
		}
		if found.TimedOut {
			break
		}
	}
	return distinct, nil
}

func (d *decider) answerLine(line []byte) ([]byte, error) {
	var given testCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	answers := make([][]json.RawMessage, len(given.Nodes))
	for i, node := range given.Nodes {
		distinct, err := d.decideOften(&given, node)
		if err != nil {
			return nil, err
		}
		answers[i] = distinct
	}
	return json.Marshal(answers)
}

func run(input io.Reader, output io.Writer) error {
	decider := newDecider()
	lines := bufio.NewReader(input)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		answered, err := decider.answerLine(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if _, err := output.Write(append(answered, '\n')); err != nil {
			return err
		}
	}
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
